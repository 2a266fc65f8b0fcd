"""`hillclimb webhooks`: created, changed, tried, listed, deleted."""

from tests.hillclimb.cli.conftest import Invoke, from_json

URL = "https://name.invalid/hook"


def test_a_webhook_is_created_changed_tried_and_deleted(hc: Invoke) -> None:
    created = hc("webhooks", "create", URL, "--event", "run.status_changed")
    assert created.exit_code == 0, created.stderr
    assert "secret  whsec_" in created.stdout
    (webhook,) = from_json(hc("webhooks", "list", "--json"))["data"]
    assert (webhook["url"], webhook["events"]) == (URL, ["run.status_changed"])
    listed = hc("webhooks", "list").stdout
    assert "run.status_changed" in listed
    assert "whsec_" not in listed
    tried = hc("webhooks", "test", webhook["id"])
    assert (tried.exit_code, tried.stdout) == (
        1,
        "not delivered: name.invalid has no address\n",
    )
    assert hc("webhooks", "change", webhook["id"], "--disable").stdout.endswith("is disabled\n")
    changed = from_json(
        hc("webhooks", "change", webhook["id"], "--all-events", "--enable", "--json")
    )
    assert (changed["events"], changed["is_enabled"]) == ([], True)
    assert hc("webhooks", "change", webhook["id"]).exit_code == 2
    assert hc("webhooks", "deliveries", webhook["id"]).exit_code == 0
    rotated = hc("webhooks", "rotate", webhook["id"])
    assert "secret  whsec_" in rotated.stdout
    assert "the secret before signs messages too" in rotated.stdout
    ended = from_json(hc("webhooks", "rotate", webhook["id"], "--grace-hours", "0", "--json"))
    assert ended["previous_until"] is None
    assert hc("webhooks", "delete", webhook["id"]).stdout == f"{webhook['id']} is deleted\n"
    assert hc("webhooks", "delete", webhook["id"]).exit_code == 7


def test_a_private_address_is_refused(hc: Invoke) -> None:
    refused = hc("webhooks", "create", "https://10.0.0.7/hook")
    assert refused.exit_code == 6
    assert "10.0.0.7 is not a public address" in refused.stderr
