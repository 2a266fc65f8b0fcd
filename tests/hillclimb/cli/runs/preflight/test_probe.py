"""`hillclimb probe`: submit and watch, or show what was found, within 80 columns."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import select

from api.tables import Run
from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json

FOUND = {"booking": 4, "github": -1, "outlook": 0}


def a_finished_probe(story: Story) -> str:
    run_id = story.running(spec().model_copy(update={"kind": "probe"}))
    story.push(run_id, story.probed(run_id, FOUND))
    story.finish(run_id, 0)
    return run_id


def test_show_prints_a_table_that_fits_a_terminal(hc: Invoke, story: Story) -> None:
    run_id = a_finished_probe(story)
    shown = hc("probe", "--show", run_id).stdout
    tables = [line for line in shown.splitlines() if not line.startswith(("advice", "probe at"))]
    assert max(len(line) for line in tables if ": " not in line) <= 80
    row = next(line.split() for line in shown.splitlines() if line.startswith("booking"))
    assert row == ["booking", "320", "50", "%", "100", "%", "(91–100)", "2", "0", "%",
                   "12", "ms", "INFORMATIVE"]  # fmt: skip
    assert "github: 320 of 320 rollouts met an infra error" in shown
    assert "number of calls per p95: booking 10, github 10, outlook 10" in shown
    assert "advice: rollout.n_samples_per_prompt 2: 57% of groups carry signal" in shown
    assert from_json(hc("probe", "--show", run_id, "--json"))["object"] == "probe"
    assert "probes builtin:tiny-qwen3-a and trains nothing" in hc("show", run_id).stdout


def test_a_training_spec_is_probed_followed_and_shown(
    hc: Invoke, story: Story, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: mine\ndata: {env_keys: [booking, github, outlook]}\n")
    done = []
    watching = Thread(target=lambda: done.append(hc("probe", str(path))))
    watching.start()
    run_id = submitted(story)
    story.launch(run_id)
    story.push(run_id, story.started(run_id), story.probed(run_id, FOUND))
    story.finish(run_id, 0)
    watching.join(30.0)
    (result,) = done
    assert result.exit_code == Exit.OK
    assert "INFORMATIVE" in result.stdout
    assert from_json(hc("show", run_id, "--json"))["spec"]["kind"] == "probe"


def test_a_probe_that_failed_before_it_reported_is_its_own_exit_code(
    hc: Invoke, story: Story, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: mine\ndata: {env_keys: [booking]}\n")
    done = []
    watching = Thread(target=lambda: done.append(hc("probe", str(path))))
    watching.start()
    run_id = submitted(story)
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    story.finish(run_id, 0, ReasonCode.MODEL_UNAVAILABLE, message="no such model")
    watching.join(30.0)
    assert done[0].exit_code == Exit.RUN_FAILED
    assert "no such model" in done[0].stdout


@pytest.mark.parametrize("arguments", [(), ("x.yaml", "--show", "run_0000000000000000000000000a")])
def test_a_probe_needs_a_spec_or_a_run(hc: Invoke, arguments: tuple[str, ...]) -> None:
    result = hc("probe", *arguments)
    assert result.exit_code == Exit.USAGE
    assert "give a SPEC to probe, or --show RUN" in result.stderr


def test_a_run_without_a_probe_is_not_found(hc: Invoke, story: Story, served: Served) -> None:
    result = hc("probe", "--show", story.running())
    assert result.exit_code == Exit.NOT_FOUND
    assert "has reported no probe" in result.stderr


def submitted(story: Story) -> str:
    """Wait for the run that a command in a thread submits.

    Not by another command: two at once would write into each other's output.
    """
    for _ in range(500):
        with story.database.transaction() as session:
            found = session.scalar(select(Run.id))
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError("nothing was submitted")
