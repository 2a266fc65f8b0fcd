"""`annotate`, `runs --tag` and `datasets note` against the real application."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fixtures.factories import spec_body
from tests.hillclimb.cli.conftest import Invoke, from_json


def test_a_run_is_tagged_linked_noted_and_found(hc: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec_body()))
    run_id = from_json(hc("submit", str(file), "--json"))["id"]
    link = "pr=https://github.com/thefleet/skyrl/pull/12"
    args = ("annotate", run_id, "--tag", "v0.2.4", "--tag", "lr", "--link", link)
    printed = hc(*args, "--note", "A larger learning rate.")
    assert printed.output.splitlines() == [
        "tags lr, v0.2.4",
        "pr https://github.com/thefleet/skyrl/pull/12",
        "A larger learning rate.",
    ]
    assert "tags lr, v0.2.4" in hc("show", run_id).output
    found = from_json(hc("runs", "--tag", "lr", "--tag", "v0.2.4", "--json"))["data"]
    assert [run["id"] for run in found] == [run_id]
    assert from_json(hc("runs", "--tag", "other", "--json"))["data"] == []
    assert hc("annotate", run_id, "--untag", "lr", "--link", "pr=", "--note", "").output == (
        "tags v0.2.4\n"
    )
    refused = hc("annotate", run_id, "--link", "pr")
    assert (refused.exit_code, "write LABEL=URL" in refused.stderr) == (2, True)


def test_a_version_is_noted(hc: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    rows = [{"key": f"t{n}", "prompt": f"Do {n}.", "env_key": "github"} for n in range(20)]
    file.write_text(json.dumps(rows))
    assert hc("datasets", "create", "mine", str(file)).exit_code == 0
    noted = hc("datasets", "note", "mine@1", "Without the flaky ones.")
    assert noted.output == "mine@1  Without the flaky ones.\n"
    assert "Without the flaky ones." in hc("datasets", "show", "mine@1").output
    assert hc("datasets", "note", "mine", "").output == "mine@1  no note\n"
