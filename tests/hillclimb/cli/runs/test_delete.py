"""`hillclimb delete` against the real service."""

from __future__ import annotations

from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json


def test_a_run_is_deleted_after_a_yes_and_what_needs_it_is_named(hc: Invoke, story: Story) -> None:
    run_id = story.running(spec("old"))
    refused = hc("delete", run_id, "--yes")
    assert (refused.exit_code, "Cancel it first" in refused.stderr) == (Exit.REFUSED, True)
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5}))
    story.finish(run_id, 40, ReasonCode.TRAINER_CRASHED)
    hc("cancel", run_id)
    hc("issue", "create", "x", "--severity", "critical", "--baseline", f"{run_id}@0")
    needed = hc("delete", run_id, "--yes", "--json")
    assert (needed.exit_code, '"in_issue"' in needed.output + needed.stderr) == (Exit.REFUSED, True)
    other = story.running(spec("other"))
    story.finish(other, 40, ReasonCode.TRAINER_CRASHED)
    hc("cancel", other)
    asked = hc("delete", other)
    assert (asked.exit_code != Exit.OK, f"Delete other ({other})" in asked.stderr) == (True, True)
    assert from_json(hc("show", other, "--json"))["id"] == other
    assert from_json(hc("delete", other, "--yes", "--json"))["id"] == other
    gone = hc("show", other)
    assert (gone.exit_code, "was deleted by" in gone.stderr) == (Exit.NOT_FOUND, True)
