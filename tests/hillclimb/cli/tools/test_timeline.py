"""`hillclimb timeline`: a trace on standard output or in a file, refusals in words."""

from __future__ import annotations

import json
from pathlib import Path

from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, blobs, from_json, hc, served, story, story_url

__all__ = ["blobs", "hc", "served", "story", "story_url"]


def test_the_command_writes_a_trace_and_refuses_steps_that_are_not_completed(
    hc: Invoke, story: Story, tmp_path: Path
) -> None:
    run_id = story.running()
    phases = story.phase(run_id, 1, "rollout"), story.phase(run_id, 1, "train")
    story.push(run_id, *phases, story.step(run_id, 1, {"booking": 0.5}))
    printed = from_json(hc("timeline", run_id, "--step", "1"))
    names = [each["name"] for each in printed["traceEvents"] if each["ph"] == "X"]
    assert names == ["step 1", "rollout", "train"]
    file = tmp_path / "trace.json"
    written = hc("timeline", run_id, "--step", "1", "-o", str(file))
    assert "ui.perfetto.dev" in written.stdout
    assert "32 rollouts have no stored times" in written.stdout
    assert json.loads(file.read_text()) == printed
    refused = hc("timeline", run_id, "--step", "2")
    assert refused.exit_code == 7
    assert "has not completed step 2" in refused.stderr
    unwritable = hc("timeline", run_id, "-o", str(tmp_path / "no" / "trace.json"))
    assert unwritable.exit_code != 0
    assert "cannot be written" in unwritable.stderr
