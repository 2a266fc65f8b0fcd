"""What each command prints, and the exit code scripts rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.runs import store
from api.scheduling.advance import advance
from hillclimb.cli.commands import main
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.client import Client
from hillclimb.protocol.outcomes import OutcomeStatus
from tests.api.datasets.samples import PLAYED, lines, tasks
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.fixtures.factories import outcome
from tests.hillclimb.cli.conftest import Invoke, from_json

SPEC = """
name: mine
data: {env_keys: [booking, github]}
schedule: {total_steps: 4, train_batch_size: 4, mini_batch_size: 2}
"""


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return str(path)


def test_submit_creates_the_run_that_list_and_show_then_know(hc: Invoke, spec_file: str) -> None:
    run = from_json(hc("submit", spec_file, "--set", "optimizer.lr=5e-4", "--json"))
    assert run["spec"]["optimizer"]["lr"] == 5e-4
    assert run["id"][:14] in hc("runs").stdout
    assert "mine" in hc("show", run["id"]).stdout


def test_a_repeated_submit_with_one_key_is_one_run(hc: Invoke, spec_file: str) -> None:
    args = ("submit", spec_file, "--idempotency-key", "k1", "--json")
    assert from_json(hc(*args))["id"] == from_json(hc(*args))["id"]


def test_plan_fills_in_defaults_and_creates_nothing(hc: Invoke, spec_file: str) -> None:
    planned = from_json(hc("plan", spec_file, "--json"))
    assert planned["spec"]["rollout"]["n_samples_per_prompt"] == 8
    assert from_json(hc("runs", "--json"))["data"] == []


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("optimizer.learning_rat=1", "unknown key 'optimizer/learning_rat'"),
        ("optimizer.foo=1", "unknown key 'optimizer/foo'; there are "),
        ("optimizer.lr=-1", "/optimizer/lr: -1 cannot be used: write a number greater than 0"),
        ("data.env_keys=[nowhere]", "unknown environment 'nowhere'"),
        ("rollout.top_p=1", "rollout/top_p is not available in this version"),
    ],
)
def test_a_bad_spec_is_refused_with_a_sentence(
    hc: Invoke, spec_file: str, assignment: str, sentence: str
) -> None:
    result = hc("submit", spec_file, "--set", assignment)
    assert result.exit_code == Exit.REFUSED
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_a_missing_file_an_unknown_run_and_a_wrong_key_have_their_own_codes(
    hc: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hc("submit", "nowhere.yaml").exit_code == Exit.USAGE
    assert hc("show", "run_0000000000000000000000000a").exit_code == Exit.NOT_FOUND
    monkeypatch.setenv("HILLCLIMB_API_KEY", "hc_" + "0" * 64)
    assert hc("runs").exit_code == Exit.REFUSED


def test_the_help_names_every_exit_code() -> None:
    text = " ".join(CliRunner().invoke(main, ["--help"]).output.split()).split("Exit codes: ")[1]
    codes = {int(each.split()[0]) for each in text.split(". ")[0].split(", ")}
    assert codes == set(Exit)


def test_no_service_is_a_sentence_and_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HILLCLIMB_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HILLCLIMB_API_KEY", "hc_x")
    result = CliRunner(mix_stderr=False).invoke(main, ["runs"])
    assert result.exit_code == Exit.UNREACHABLE
    assert "does not respond" in result.stderr
    assert "start it with `hillclimb up`" in result.stderr
    assert "Errno" not in result.stderr


def test_cancel_ends_a_queued_run_and_watch_says_so(hc: Invoke, spec_file: str) -> None:
    run_id = from_json(hc("submit", spec_file, "--json"))["id"]
    assert "cancelled" in hc("cancel", run_id).stdout
    watched = hc("watch", run_id)
    assert watched.exit_code == Exit.RUN_CANCELLED
    assert "status cancelled" in watched.stdout


def test_pause_lets_a_run_rest_and_resume_wakes_it(hc: Invoke, spec_file: str) -> None:
    run_id = from_json(hc("submit", spec_file, "--json"))["id"]
    assert f"{run_id} paused" in hc("pause", run_id, "--watch").stdout
    assert from_json(hc("pause", run_id, "--json"))["status"] == "paused"
    assert hc("watch", run_id).exit_code == Exit.RUN_PAUSED
    assert f"{run_id} queued" in hc("resume", run_id).stdout


def test_ctrl_c_while_watching_is_130_and_says_that_the_run_goes_on(
    hc: Invoke, spec_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "follow", interrupted)
    for extra in ((), ("--json",)):
        result = hc("submit", spec_file, "--watch", *extra)
        assert result.exit_code == Exit.INTERRUPTED == 130
        assert "the run continues: hillclimb watch run_" in result.stderr
    assert {run["status"] for run in from_json(hc("runs", "--json"))["data"]} == {"queued"}


@pytest.mark.parametrize("arguments", [("runs",), ("runs", "--json"), ("plan", "spec.yaml")])
def test_a_reader_that_leaves_and_a_poor_terminal_cause_no_stack_trace(
    served: Served, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    environment = {
        "HILLCLIMB_API_URL": served.url,
        "HILLCLIMB_API_KEY": served.key,
        "PYTHONIOENCODING": "ascii",
    }
    command = f"'{sys.executable}' -m hillclimb.cli {' '.join(arguments)} | true"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert said == []


def test_a_run_without_checkpoint_can_be_neither_resumed_nor_pulled(
    hc: Invoke, spec_file: str, tmp_path: Path
) -> None:
    run_id = from_json(hc("submit", spec_file, "--json"))["id"]
    hc("cancel", run_id)
    assert hc("resume", run_id).exit_code == Exit.REFUSED
    assert hc("pull", run_id, str(tmp_path / "w")).exit_code != Exit.OK


def test_eval_evaluates_a_checkpoint_in_a_run_of_its_own(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    for step in (10, 20):
        story.push(run_id, story.checkpoint(run_id, step))
    newest = from_json(hc("eval", run_id, "--json"))["spec"]
    assert (newest["kind"], newest["name"]) == ("eval", "climb eval.20")
    assert newest["lineage"]["resumed_from"] == {"run_id": run_id, "step": 20, "attempt": 1}
    again = hc("eval", f"{run_id}@10", "--set", "data.eval_tasks_per_env=5", "--json")
    other = from_json(again)
    assert other["spec"]["data"]["eval_tasks_per_env"] == 5
    assert (other["progress"]["total"], other["status"]) == (10, "queued")
    assert f"evaluates step 10 of {run_id} and trains nothing" in hc("show", other["id"]).stdout
    missing = hc("eval", f"{run_id}@11")
    assert missing.exit_code == Exit.NOT_FOUND
    assert "no checkpoint at step 11 (steps with one: 20, 10)" in missing.stderr
    assert hc("eval", f"{run_id}@x").exit_code == Exit.USAGE


def test_a_later_quarantine_does_not_keep_a_checkpoint_from_being_evaluated(
    hc: Invoke, story: Story, tmp_path: Path
) -> None:
    """The service named the environments; without one the figure would mean something else."""
    (tmp_path / "tasks.jsonl").write_bytes(lines(tasks(booking=60, github=60)))
    path = tmp_path / "spec.yaml"
    path.write_text("name: mine\ndata: {dataset: fleet, allow_lint: [leak]}\n" + PLAYED)
    made = hc("datasets", "create", "fleet", str(tmp_path / "tasks.jsonl"))
    assert made.exit_code == 0, made.stderr
    run_id = from_json(hc("submit", str(path), "--json"))["id"]
    story.launch(run_id)
    story.push(run_id, story.started(run_id), story.checkpoint(run_id, 10))
    quarantine = ("datasets", "quarantine", "fleet", "github", "--for", "3d", "--reason", "502")
    assert hc(*quarantine).exit_code == 0
    evaluated = from_json(hc("eval", run_id, "--json"))
    assert evaluated["spec"]["data"]["env_keys"] == ["booking", "github"]
    assert "github is used although it is in quarantine" in hc("show", evaluated["id"]).stdout
    named = hc("eval", run_id, "--set", "data.env_keys=[github]")
    assert named.exit_code == Exit.REFUSED
    assert "data.env_keys names github, which is in quarantine" in named.stderr


def test_a_run_with_one_evaluation_shows_it_alone(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 20, {"booking": 0.5, "github": 1.0}))
    shown = hc("show", run_id).stdout
    assert "at step 20 with" in shown
    assert "verdict" not in shown
    assert "50.0" in shown


def test_trajectories_lists_failed_rollouts_of_one_environment(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.5, "github": 0.2}))
    page = from_json(hc("trajectories", run_id, "--failed", "--env", "booking", "--json"))
    assert page["data"]
    assert {row["env_key"] for row in page["data"]} == {"booking"}
    assert all(row["score"] < 1.0 for row in page["data"])


def test_trajectories_says_why_rollouts_have_no_grade(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    why = {"reason": "env_unavailable", "detail": "401: the key is unknown"}
    lost = [outcome(f"t{i}", None, status=OutcomeStatus.INFRA_ERROR, **why) for i in range(2)]
    event = story.step(run_id, 1, {"booking": 1.0})
    story.push(run_id, event.model_copy(update={"outcomes": (*lost, outcome("won"))}))
    printed = " ".join(hc("trajectories", run_id).stdout.split())
    assert "2 without a grade: env_unavailable: 401: the key is unknown" in printed


def test_show_and_watch_tell_the_whole_story_of_a_run(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    for step, rate in ((0, 0.2), (2, 0.8)):
        rates = {"booking": rate, "github": 1.0}
        if step:
            story.push(run_id, story.step(run_id, step, rates))
        story.push(run_id, story.evaluation(run_id, step, rates))
        story.push(run_id, story.evaluation(run_id, step, rates, decoding="greedy"))
    story.finish(run_id, 2)
    with story.database.transaction() as session:
        advance(session, store.lock_run(session, run_id), now=story.now)
    watched = hc("watch", run_id)
    assert watched.exit_code == Exit.OK, watched.output
    assert "eval at step 2 (greedy)" in watched.stdout
    shown = hc("show", run_id).stdout
    assert "IMPROVED" in shown
    assert "SATURATED" in shown
    lines = hc("watch", run_id, "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
