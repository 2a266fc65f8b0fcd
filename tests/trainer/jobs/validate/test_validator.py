"""Validations without a teacher: recorded calls, and verifiers on a known fail and a known pass."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from hillclimb.environment.base import Env, Grade, ToolSpec
from hillclimb.environment.errors import EnvUnavailable
from hillclimb.environment.task import Task
from hillclimb.minifleet.faults import Faults
from hillclimb.protocol.events import PhaseStarted, RunWarning, TrainerStarted, ValidationCompleted
from hillclimb.protocol.validation import Reason, TaskCheck, TaskVerdict
from hillclimb.spec.run import MINIFLEET_ENV_KEYS
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import with_step_timeout
from tests.trainer.jobs.validate.runs import Validation
from trainer.attempt.stop_signal import StopRequested
from trainer.envs.minifleet import MinifleetProvider
from trainer.errors import AttemptSuperseded, StepTimeout
from trainer.jobs.validate.rows import rows_key
from trainer.jobs.validate.validator import Validator

Payload = Mapping[str, JsonValue]


def with_payload(work: Validator, index: int, **payload: JsonValue) -> str:
    """Change what the environment knows of a task, and return the task's key."""
    tasks = list(work.tasks)
    tasks[index] = replace(tasks[index], payload={**tasks[index].payload, **payload})
    work.tasks = tasks
    return tasks[index].key


async def test_every_task_of_every_app_is_solved_by_its_recorded_calls(tmp_path: Path) -> None:
    run = Validation(
        tmp_path,
        data={
            "env_keys": list(MINIFLEET_ENV_KEYS),
            "train_tasks_per_env": 16,
            "eval_tasks_per_env": 4,
        },
        schedule={"train_batch_size": 8, "mini_batch_size": 8},
        tasks_per_env=None,
    )
    found = await run.run()
    assert found.complete
    assert found.summary.verdicts == {"valid": 8 * 20}
    assert found.summary.environments["zillow"] == {"valid": 20}
    assert (found.summary.coverage, found.summary.reasons, found.teacher) == (1.0, {}, None)
    rows = run.rows()
    assert [row.task_key for row in rows] == [task.key for task in run.tasks()]
    assert {(r.replay, r.verifier_on_start, r.verifier_on_replay) for r in rows} == {
        (TaskCheck.PASSED, TaskCheck.PASSED, TaskCheck.PASSED)
    }
    (started,) = run.events(TrainerStarted)
    assert (started.engine, started.num_parameters, started.num_train_tasks) == ("none", 0, 160)


async def test_what_fails_is_excluded_with_the_reason(tmp_path: Path) -> None:
    run = Validation(tmp_path, tasks_per_env=4)
    work = run.validator()
    untouched = with_payload(work, 0, changes=[])
    bad_call: JsonValue = {"tool_calls": [{"name": "book_room", "arguments": {"room": "r0"}}]}
    refused = with_payload(work, 1, metadata=bad_call)
    look: JsonValue = {"tool_calls": [{"name": "list_bookings", "arguments": {"guest": "Ada"}}]}
    pointless = with_payload(work, 2, metadata=look)
    no_call = with_payload(work, 3, metadata={"tool_calls": ["search"]})
    await run.finish(work)
    rows = {row.task_key: row for row in run.rows()}
    assert rows[untouched].reason is Reason.PASSES_UNTOUCHED
    assert rows[untouched].detail == "the verifier gives the untouched start state 1"
    assert rows[untouched].verifier_on_start is TaskCheck.FAILED
    assert rows[refused].reason is Reason.REPLAY_REFUSED
    assert "call 1, book_room, is refused:" in (rows[refused].detail or "")
    assert rows[pointless].reason is Reason.REPLAY_NOT_PASSED
    assert rows[pointless].replay is TaskCheck.PASSED
    assert rows[no_call].detail == (
        f"task {no_call}: metadata.tool_calls[0] is not a call: it needs a name and an object of"
        " arguments"
    )
    verdicts = Counter(row.verdict for row in rows.values())
    assert verdicts == {TaskVerdict.EXCLUDED: 4, TaskVerdict.VALID: 4}
    assert run.event().summary.environments == {"booking": {"excluded": 4}, "github": {"valid": 4}}


async def test_an_environment_that_fails_leaves_its_tasks_unknown(tmp_path: Path) -> None:
    provider = MinifleetProvider(
        env_keys=("booking", "github"),
        faults={"github": Faults(verifier_error_rate=1.0), "booking": Faults(call_error_rate=0.4)},
    )
    found = await Validation(tmp_path, environment={"max_infra_retries": 5}).run(provider)
    assert found.summary.environments["github"] == {"unknown": 3}
    assert set(found.summary.environments["booking"]) <= {"valid", "unknown"}, "never excluded"
    assert found.summary.reasons["not_answered"] >= 3
    assert found.summary.coverage == 1.0 - found.summary.verdicts["unknown"] / 6


async def test_the_row_of_a_task_whose_verifier_crashes_quotes_the_error(tmp_path: Path) -> None:
    class Crashing(CountingEnv):
        async def score(self) -> Grade:
            return Grade(score=None, reason="verifier_crashed", detail="KeyError: sk-abcdefgh")

    run = Validation(tmp_path, tasks_per_env=1)
    work = run.validator(
        CountingProvider(lambda _: Crashing(1)), environ={"PLATFORM_API_KEY": "sk-abcdefgh"}
    )
    work.tasks = [replace(task, key=f"{task.key}x", payload={}) for task in work.tasks]
    await run.finish(work)
    assert {row.detail for row in run.rows()} == {
        "verifier_unavailable: verifier_crashed: KeyError: ***********"
    }


async def test_a_permanent_refusal_is_not_tried_again(tmp_path: Path) -> None:
    class Refusing(CountingEnv):
        async def reset(self) -> tuple[ToolSpec, ...]:
            raise EnvUnavailable("401: the key is unknown", is_permanent=True)

    provider = CountingProvider(lambda _: Refusing(1))
    run = Validation(tmp_path, tasks_per_env=1, environment={"max_infra_retries": 5})
    work = run.validator(provider)
    work.tasks = [replace(task, key="unknown", payload={}) for task in work.tasks[:1]]
    await run.finish(work)
    assert [row.detail for row in run.rows()] == ["env_unavailable: 401: the key is unknown"]
    assert len(provider.envs) == 1


async def test_without_recorded_calls_a_task_is_unproven(tmp_path: Path) -> None:
    run = Validation(tmp_path, tasks_per_env=1)
    work = run.validator()
    work.tasks = [
        replace(
            task,
            key=f"{task.key}x",
            payload={name: value for name, value in task.payload.items() if name != "goal"},
        )
        for task in work.tasks
    ]
    await run.finish(work)
    assert run.event().summary.verdicts == {"unproven": 2}
    assert {row.replay for row in run.rows()} == {TaskCheck.ABSENT}


class Stopping(MinifleetProvider):
    """Asks the run to stop after so many episodes, or says that another attempt owns it."""

    def __post_init__(self) -> None:
        MinifleetProvider.__post_init__(self)
        self.count = 0

    def make(self, task: Task) -> Env:  # type: ignore[override]
        self.count += 1
        if self.count == self.limit:
            self.run.stop.fence() if self.supersedes else self.run.stop.request_stop()
        return super().make(task)

    limit: int = 0
    supersedes: bool = False
    run: Validation
    count: int = 0


async def test_what_was_found_before_a_stop_is_kept_and_taken_up(tmp_path: Path) -> None:
    run = Validation(tmp_path, tasks_per_env=5, environment={"max_concurrent_rollouts": 1})
    slow = dict.fromkeys(("booking", "github"), Faults(latency_s=0.001))
    provider = Stopping(env_keys=("booking", "github"), faults=slow)
    provider.run, provider.limit = run, 8
    with pytest.raises(StopRequested):
        await run.run(provider)
    found = run.event()
    assert not found.complete
    known = found.summary.verdicts["valid"]
    assert 3 <= known <= 4, "two episodes per task"
    assert found.summary.reasons == {"not_reached": 10 - known}

    again = Stopping(env_keys=("booking", "github"))
    again.run = run
    whole = await run.run(again, attempt=2)
    assert whole.complete
    assert whole.summary.verdicts == {"valid": 10}
    assert again.count == 2 * (10 - known)
    (warning,) = run.events(RunWarning, 2)
    assert warning.message.startswith(f"{known} tasks were checked by an earlier attempt")


class Sleepy(MinifleetProvider):
    """The environments of github take an hour to start."""

    def make(self, task: Task) -> Env:  # type: ignore[override]
        return Asleep(goal=1) if task.env_key == "github" else super().make(task)


class Asleep(CountingEnv):
    """Does not start within any test's time."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        await asyncio.sleep(3600.0)
        return ()


async def test_an_episode_that_takes_too_long_leaves_its_task_unknown_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.jobs.validate.validator.PROGRESS_S", 0.02)
    run = Validation(
        tmp_path,
        environment={"max_concurrent_rollouts": 1},
        schedule={"step_timeout_s": 500.0},
    )
    work = run.validator(Sleepy(env_keys=("booking", "github")))
    work.checker.episodes.episode_s = 0.1
    work.watchdog.context = with_step_timeout(work.context, 0.5)
    await run.finish(work)
    found = run.event()
    assert found.complete, "longer than a step in all, but something ended in each"
    assert found.summary.environments == {"booking": {"valid": 3}, "github": {"unknown": 3}}
    details = {row.detail for row in run.rows() if row.verdict is TaskVerdict.UNKNOWN}
    assert details == {"an episode took longer than 0.1 s"}
    left = [event.num_rollouts for event in run.events(PhaseStarted)]
    assert left == sorted(left, reverse=True)
    assert (left[0], len(left) >= 3) == (6, True), "signs of life on the way"


async def test_where_nothing_ends_any_more_the_run_pauses_with_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.jobs.validate.validator.PROGRESS_S", 0.02)
    run = Validation(tmp_path, environment={"max_concurrent_rollouts": 1})
    work = run.validator(Sleepy(env_keys=("booking", "github")))
    work.watchdog.context = with_step_timeout(work.context, 0.3)
    with pytest.raises(StepTimeout, match="the checks of some tasks did not end"):
        await run.finish(work)
    found = run.event()
    assert not found.complete
    assert found.summary.verdicts == {"valid": 3, "unknown": 3}


async def test_an_attempt_that_was_superseded_stores_and_reports_nothing(tmp_path: Path) -> None:
    run = Validation(tmp_path, tasks_per_env=5, environment={"max_concurrent_rollouts": 1})
    slow = dict.fromkeys(("booking", "github"), Faults(latency_s=0.001))
    provider = Stopping(env_keys=("booking", "github"), faults=slow)
    provider.run, provider.limit, provider.supersedes = run, 8, True
    with pytest.raises(AttemptSuperseded):
        await run.run(provider)
    assert run.events(ValidationCompleted) == []
    assert not run.store.exists(rows_key(run.dir(), 1))


def test_a_validation_starts_without_what_models_need() -> None:
    code = "import sys, trainer.__main__, trainer.jobs.validate.wiring; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint({"torch", "transformers", "vllm", "ray"})
