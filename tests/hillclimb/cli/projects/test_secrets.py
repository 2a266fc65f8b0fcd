"""`hillclimb secrets`: values come from standard input or a file, and never go out again."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hillclimb.cli.commands import main
from tests.api.fixtures.serving import Served
from tests.hillclimb.cli.conftest import Invoke, from_json

VALUE = "the-fleet-key"


@pytest.fixture
def piped(served: Served, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("HILLCLIMB_API_URL", served.url)
    monkeypatch.setenv("HILLCLIMB_API_KEY", served.key)

    def invoke(*args: str) -> Result:
        return CliRunner(mix_stderr=False).invoke(main, [*args], input=VALUE + "\n")

    return invoke


def test_a_secret_is_set_from_standard_input_listed_and_deleted(hc: Invoke, piped: Invoke) -> None:
    done = piped("secrets", "set", "fleet-prod")
    assert done.exit_code == 0, done.stderr
    assert "fleet-prod is stored (version 1)" in done.stdout
    assert from_json(piped("secrets", "set", "fleet-prod", "--json"))["version"] == 2
    listed = hc("secrets", "list")
    assert "fleet-prod" in listed.stdout
    assert "never" in listed.stdout
    assert from_json(hc("secrets", "reencrypt", "--json"))["num_reencrypted"] == 0
    assert "0 secrets now use the master key" in hc("secrets", "reencrypt").stdout
    assert hc("secrets", "delete", "fleet-prod").stdout == "fleet-prod is deleted\n"
    assert "`hillclimb secrets set NAME`" in hc("secrets", "list").stdout
    assert hc("secrets", "delete", "fleet-prod").exit_code == 7
    assert VALUE not in done.stdout + done.stderr + listed.stdout


def test_a_secret_is_set_from_a_file_and_a_bad_one_is_refused(hc: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(VALUE + "\n")
    assert hc("secrets", "set", "fleet-prod", "--file", str(file)).exit_code == 0
    file.write_text("tiny!")
    refused = hc("secrets", "set", "fleet-prod", "--file", str(file))
    assert refused.exit_code == 6
    assert "fewer than 6 characters" in refused.stderr
    assert "tiny!" not in refused.stderr


def test_a_value_cannot_be_an_argument(hc: Invoke) -> None:
    refused = hc("secrets", "set", "fleet-prod", VALUE)
    assert refused.exit_code == 2


def test_hosts_are_set_kept_and_taken_away(hc: Invoke, piped: Invoke) -> None:
    done = piped("secrets", "set", "shop", "--host", "shop.example", "--host", "*.eu.example")
    assert "A spec may send it to *.eu.example, shop.example alone." in done.stdout
    assert "shop.example" in hc("secrets", "list").stdout
    kept = from_json(piped("secrets", "set", "shop", "--json"))
    assert kept["hosts"] == ["*.eu.example", "shop.example"]
    assert from_json(piped("secrets", "set", "shop", "--no-hosts", "--json"))["hosts"] == []
    both = piped("secrets", "set", "shop", "--no-hosts", "--host", "shop.example")
    assert both.exit_code == 2
