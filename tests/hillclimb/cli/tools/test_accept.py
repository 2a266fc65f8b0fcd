"""`hillclimb accept` against the real application, and peers on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hillclimb.cli.commands import main
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.tools import data_plane
from hillclimb.cli.tools.accept import ladders
from hillclimb.process.acceptance.targets import FACTS, TARGETS
from tests.api.fixtures.serving import Served
from tests.fixtures.factories import spec_body
from tests.hillclimb.cli.conftest import Invoke, from_json

AWAY = {"provider": "fleet", "fleet": {"base_url": "https://fleet.example"}}


@pytest.fixture
def fleet_ladder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data plane whose ladder says what a file says: it is tried itself in tests/trainer."""
    said = tmp_path / "said.jsonl"
    script = tmp_path / "python"
    code = f"grep -q subject '{said}' && exit 0; grep -q passed '{said}' && exit 3; exit 2"
    script.write_text(f"#!/bin/sh\ncat '{said}'\necho 'error: set FLEET_API_KEY' >&2\n{code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(ladders, "find_python", lambda: script)
    return said


def checks(*names: str, failed: str | None = None) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "passed": name != failed,
            "seen": f"{name} seen",
            "seconds": 0.1,
            "remedy": "set the key" if name == failed else "",
        }
        for name in names
    ]


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_every_target_says_what_it_needs_and_costs(hc: Invoke) -> None:
    listed = from_json(hc("accept", "--list", "--json"))
    assert list(listed) == list(TARGETS)
    assert all(each["needs"] and each["cost"] for each in listed.values())
    assert all(set(each["bounds"]) <= set(each["checks"]) for each in listed.values())
    assert "two tiny rounds" in hc("accept", "--list").stdout


def test_a_ladder_that_passes_is_stored_shown_and_forgotten(
    hc: Invoke, fleet_ladder: Path, tmp_path: Path
) -> None:
    facts = {"subject": "https://fleet.example", "versions": {"hillclimb": "0.1.0"}}
    write(fleet_ladder, [*checks(*FACTS["fleet"].checks), facts])
    passed = hc("accept", "fleet", "--env", "booking", "--task", "t")
    assert passed.exit_code == 0, passed.output
    assert "specs need no `experimental` for fleet on https://fleet.example" in passed.stdout
    (row,) = from_json(hc("accept", "show", "--json"))["data"]
    assert (row["target"], row["paths"], row["void"]) == ("fleet", ["fleet"], None)
    assert "verified: verified seen" in hc("accept", "show", "fleet").stdout
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(spec_body(environment=AWAY)))
    assert "needs no flag: fleet on https://fleet.example" in hc("plan", str(spec)).stderr
    assert "is forgotten" in hc("accept", "fleet", "--forget").stdout
    assert "there was no evidence of fleet" in hc("accept", "fleet", "--forget").stdout


def test_the_first_failure_is_printed_with_its_remedy_and_nothing_is_stored(
    hc: Invoke, fleet_ladder: Path
) -> None:
    write(fleet_ladder, checks("key", "created", failed="created"))
    failed = hc("accept", "fleet", "--env", "booking", "--task", "t")
    assert failed.exit_code == 1
    assert "fail  created: created seen" in failed.stdout
    assert "set the key" in failed.stdout
    assert from_json(hc("accept", "show", "--json"))["data"] == []
    as_json = hc("accept", "fleet", "--env", "booking", "--task", "t", "--json")
    assert as_json.exit_code == 1
    document = json.loads(as_json.stdout)
    assert (document["passed"], document["acceptance"]) == (False, None)


def test_what_is_tried_is_said_before_it_is_known_how_it_went(
    hc: Invoke, fleet_ladder: Path
) -> None:
    begun = [{"tries": "https://fleet.example"}, {"begins": "key", "limit_s": 13.0}]
    write(fleet_ladder, [*begun, *checks("key", failed="key")])
    failed = hc("accept", "fleet", "--env", "booking", "--task", "t")
    assert failed.stderr.splitlines()[1:] == [
        "      at https://fleet.example",
        "  ..  key, for 13 s at most",
    ]
    assert failed.stderr.startswith("fleet: an instance of the platform")
    assert hc("accept", "fleet", "--env", "booking", "--task", "t", "--json").stderr == ""


def test_a_ladder_that_cannot_begin_says_why(hc: Invoke, fleet_ladder: Path) -> None:
    write(fleet_ladder, [])
    refused = hc("accept", "fleet", "--env", "booking", "--task", "t")
    assert refused.exit_code == Exit.REFUSED
    assert "set FLEET_API_KEY" in refused.stderr


def test_a_key_that_may_not_store_evidence_begins_nothing(
    hc: Invoke, fleet_ladder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(fleet_ladder, checks("key", failed="key"))
    created = from_json(hc("keys", "create", "reader", "--role", "member", "--json"))
    monkeypatch.setenv("HILLCLIMB_API_KEY", created["secret"])
    for arguments in (["fleet", "--env", "booking", "--task", "t"], ["gpu"]):
        refused = CliRunner(mix_stderr=False).invoke(main, ["accept", *arguments])
        assert refused.exit_code == Exit.REFUSED
        assert "scope `operator`" in refused.stderr
        assert refused.stdout == ""


def test_without_a_data_plane_the_way_to_one_is_named(
    hc: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise data_plane.DataPlaneMissing("no data plane at /x: run `make setup`")

    monkeypatch.setattr(ladders, "find_python", missing)
    refused = hc("accept", "wandb")
    assert "run `make setup`" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fleet"], "--env, --task"),
        (["tinker"], "name a model of the server: --model"),
        (["cluster"], "name where to rent"),
        (["gpu", "--infra", "lambda"], "--infra and --accelerators together"),
    ],
)
def test_what_a_target_needs_is_named(hc: Invoke, arguments: list[str], sentence: str) -> None:
    refused = hc("accept", *arguments)
    assert refused.exit_code == 2
    assert sentence in refused.stderr


def test_the_service_says_that_it_has_no_bucket_and_no_bot(hc: Invoke, served: Served) -> None:
    for target, remedy in (("s3", "HILLCLIMB_BLOBS_URL"), ("slack", "SLACK_BOT_TOKEN")):
        refused = hc("accept", target)
        assert refused.exit_code == 6
        assert remedy in refused.stderr
        where = f"at {served.url}; its checks are shown once the last of them has ended\n"
        assert where in refused.stderr


def test_machines_that_the_service_refuses_end_the_ladder_at_the_plan(hc: Invoke) -> None:
    answer = hc(
        *("accept", "gpu", "--infra", "lambda", "--accelerators", "H100:1"),
        *("--set", "model.source=hf:mistralai/Mistral-7B", "--json"),
    )
    document = json.loads(answer.stdout)
    assert [each["name"] for each in document["observations"]] == ["plan"]
    assert document["observations"][0]["remedy"]
