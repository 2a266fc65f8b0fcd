"""The runner's key goes to the server that its operator names, and nowhere else."""

from __future__ import annotations

import pytest

from hillclimb.spec.backend.tinker import DEFAULT_BASE_URL, TinkerSpec
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import LeaveOf
from trainer.workers.tinker.account import account_of

LOCAL, AWAY = "http://127.0.0.1:8730", "https://tinker.example"
KEY = {"TINKER_API_KEY": "tml-secret"}


def account(url: str | None, environ: dict[str, str], *, experimental: bool = False) -> str:
    spec = TinkerSpec(base_url=url)
    return account_of(spec, LeaveOf(experimental=experimental), KEY | environ).base_url


def test_the_spec_comes_first_then_the_environment_under_either_name() -> None:
    assert account(LOCAL, {"TINKER_BASE_URL": "http://localhost:1"}) == LOCAL
    assert account(None, {"TINKER_BASE_URL": f"{LOCAL}/"}) == LOCAL
    assert account(None, {"TINKER_API_URL": LOCAL}) == LOCAL
    assert account(None, {}, experimental=True) == DEFAULT_BASE_URL


@pytest.mark.parametrize("url", [None, AWAY])
def test_a_server_elsewhere_is_an_experiment(url: str | None) -> None:
    with pytest.raises(SpecError, match="never run against anything but a server on this machine"):
        account(url, {})


def test_a_spec_cannot_lead_the_key_to_an_address_of_its_own() -> None:
    with pytest.raises(SpecError, match="only to the server that its operator names"):
        account(AWAY, {}, experimental=True)
    named = {"TINKER_BASE_URL": AWAY}
    assert account(AWAY, named, experimental=True) == AWAY


def test_a_server_on_the_runners_machine_needs_its_operators_consent() -> None:
    closed = {"HILLCLIMB_RUN_PRIVATE_HOSTS": "none"}
    with pytest.raises(SpecError, match=r"no public address.*HILLCLIMB_RUN_PRIVATE_HOSTS"):
        account(LOCAL, closed)
    assert account(LOCAL, {"HILLCLIMB_RUN_PRIVATE_HOSTS": "loopback"}) == LOCAL
    assert account(None, closed | {"TINKER_BASE_URL": LOCAL}) == LOCAL, "the operator named it"


def test_the_key_does_not_travel_where_others_read_along() -> None:
    named = {"TINKER_BASE_URL": "http://tinker.example"}
    with pytest.raises(SpecError, match="the key travels over https only"):
        account(None, named, experimental=True)


@pytest.mark.parametrize("key", ["", "  ", "sk-other", "tml-\u00e9", "tml-a\nb"])
def test_without_a_key_of_tinkers_nothing_is_asked(key: str) -> None:
    with pytest.raises(SpecError, match="set TINKER_API_KEY in the runner's environment"):
        account(LOCAL, {"TINKER_API_KEY": key})


def test_the_key_is_not_shown() -> None:
    found = account_of(TinkerSpec(base_url=LOCAL), LeaveOf(experimental=False), KEY)
    assert "secret" not in repr(found)
