"""Folding events into what a person sees."""

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from hillclimb.cli.runs.view import lines_of_event, render
from hillclimb.client.run_view import RunView, StartProgress, apply, from_run
from tests.hillclimb.client.payloads import run_payload

RUN = run_payload()


def test_events_move_the_view_and_unknown_ones_do_not() -> None:
    view = from_run(RUN)
    view = apply(view, "trainer.started", {"total_steps": 30, "step": 0})
    view = apply(view, "phase.started", {"phase": "eval", "decoding": "greedy"})
    assert (view.total_steps, view.phase) == (30, "eval (greedy)")
    assert apply(view, "something.new", {"x": 1}) == view


def test_phases_of_a_start_are_kept_until_the_next_attempt() -> None:
    begin, end = {"phase": "ray", "seconds": None}, {"phase": "ray", "seconds": 3.2}
    at = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    view = apply(from_run(RUN), "trainer.starting", begin, at)
    assert (view.startup, view.begun) == ({"ray": StartProgress(since=at)}, "ray")
    view = apply(view, "trainer.starting", end, at)
    assert (view.startup, view.begun) == ({"ray": StartProgress(seconds=3.2)}, "")
    view = apply(apply(view, "trainer.starting", begin, at), "trainer.starting", end, at)
    assert view.startup["ray"].seconds == 6.4
    assert apply(view, "attempt.scheduled", {"attempt": 2}).startup == {}


def test_a_step_brings_reward_eta_and_pass_rates() -> None:
    step = {
        "step": 3,
        "eta_s": 12.5,
        "metrics": {"reward/avg_raw_reward": 0.25},
        "envs": {"booking": {"pass_at_1": 0.5}, "github": {"pass_at_1": None}},
    }
    view = apply(RunView(run_id="run_1"), "step.completed", step)
    assert (view.step, view.eta_s, view.rewards, view.envs) == (3, 12.5, (0.25,), {"booking": 0.5})


def test_an_eval_is_kept_by_step_and_decoding() -> None:
    data = {
        "step": 10,
        "decoding": "greedy",
        "all": {"pass_at_1": 0.4},
        "envs": {"booking": {"pass_at_1": 0.4}},
    }
    view = apply(RunView(run_id="run_1"), "eval.completed", data)
    assert view.evals == {(10, "greedy"): {"booking": 0.4, "all": 0.4}}


def test_a_status_change_brings_its_reason_and_a_later_one_clears_it() -> None:
    reason = {"code": "trainer_crashed", "message": "killed by signal 9"}
    view = apply(RunView(run_id="run_1"), "run.status_changed", {"to": "failed", "reason": reason})
    assert (view.status, view.end_reason, view.message) == (
        "failed",
        "trainer_crashed",
        "killed by signal 9",
    )
    assert view.ended
    view = apply(view, "run.status_changed", {"to": "running"})
    assert (view.end_reason, view.message, view.ended) == (None, "", False)


def test_a_rewind_takes_back_the_steps_that_are_done_again() -> None:
    view = RunView(run_id="run_1", step=5, rewards=(0.1, 0.2, 0.3, 0.4, 0.5))
    view = apply(view, "attempt.scheduled", {"attempt": 2, "from_step": 3})
    view = apply(view, "attempt.rewound", {"from_step": 3, "reached_step": 5})
    assert (view.attempt, view.step, view.rewards) == (2, 3, (0.1, 0.2, 0.3))


def test_warnings_are_kept_in_order() -> None:
    view = apply(RunView(run_id="run_1"), "run.warning", {"code": "dataset", "message": "a"})
    view = apply(view, "run.warning", {"code": "dataset_lint", "message": "b"})
    view = apply(view, "guard.tripped", {"message": "no_signal: c"})
    refused = {"refused_type": "step.completed", "step": 4, "message": "Too large."}
    view = apply(view, "event.refused", refused)
    sentence = "an event was not stored (step.completed, step 4): Too large."
    assert view.warnings == ("a", "b", "guard no_signal: c", sentence)
    assert lines_of_event(view, "event.refused") == [f"warning: {sentence}"]


def test_pass_at_n_is_kept_where_tasks_were_sampled_n_times() -> None:
    rate = {"pass_at_1": 0.4, "pass_at_n": {"k": 3, "value": 0.7, "low": 0.5, "high": 0.9}}
    data = {"step": 10, "decoding": "sampled", "all": rate, "envs": {"booking": rate}}
    view = apply(RunView(run_id="run_1"), "eval.completed", data)
    assert view.evals_at_n == {(10, "sampled"): (3, {"booking": 0.7, "all": 0.7})}
    assert lines_of_event(view, "eval.completed") == [
        "eval at step 10 (sampled): all 40.0 % (pass@3 70.0 %)  booking 40.0 % (pass@3 70.0 %)"
    ]
    screen = Console(width=200, record=True, file=StringIO())
    screen.print(render(view))
    assert "pass@3" in (text := screen.export_text())
    assert "70.0 %" in text
