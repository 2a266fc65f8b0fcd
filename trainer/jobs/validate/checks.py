"""The checks of one task: its recorded calls, its verifier on a known fail and a known pass."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.environment.task import Task
from hillclimb.protocol.validation import Reason, TaskCheck, TaskValidation, TaskVerdict, judge
from trainer.errors import DataError
from trainer.jobs.validate.episodes import EpisodeRunner, OpenEpisode
from trainer.jobs.validate.errors import NotAnswered
from trainer.jobs.validate.recorded_calls import recorded_calls
from trainer.jobs.validate.teacher import TeacherSolver


@dataclass(frozen=True, slots=True)
class _Finding:
    """Results of some checks; the first one that did not pass gives the reason."""

    checks: dict[str, TaskCheck]
    reason: Reason | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks tasks, one after the other or concurrently."""

    episodes: EpisodeRunner
    pass_threshold: float
    solver: TeacherSolver | None
    """None without a teacher."""
    teacher_is_required: bool = True

    async def check(self, task: Task) -> TaskValidation:
        """Check a task; failures that are not the task's own leave its verdict unknown.

        The teacher does not try a task that fails another check.

        Raises:
            TrainerError: the run cannot go on.
        """
        row = TaskValidation(task_key=task.key, env_key=task.env_key, verdict=TaskVerdict.UNKNOWN)
        for finding in (await self._check_start(task), await self._check_replay(task)):
            row = _add(row, finding)
        if self.solver is not None and not _has_failed(row):
            result = await self.solver.solve(task)
            update: dict[str, object] = {"teacher": result.tries}
            if row.reason is None:
                update |= {"reason": result.reason, "detail": result.detail}
            row = row.model_copy(update=update)
        return judge(row, teacher_is_required=self.teacher_is_required)

    async def _check_start(self, task: Task) -> _Finding:
        """Grade the start state, before any call."""
        name = "verifier_on_start"
        try:
            score = await self.episodes.run(task, OpenEpisode.score)
        except NotAnswered as error:
            return _Finding({name: TaskCheck.UNKNOWN}, Reason.NOT_ANSWERED, str(error))
        if score >= self.pass_threshold:
            detail = f"the verifier gives the untouched start state {score:g}"
            return _Finding({name: TaskCheck.FAILED}, Reason.PASSES_UNTOUCHED, detail)
        return _Finding({name: TaskCheck.PASSED})

    async def _check_replay(self, task: Task) -> _Finding:
        """Replay the recorded calls and grade the resulting state."""
        try:
            if recorded_calls(task) is None:
                return _Finding(
                    {"replay": TaskCheck.ABSENT, "verifier_on_replay": TaskCheck.ABSENT}
                )
            refused, score = await self.episodes.run(task, _replay)
        except DataError as error:
            checks = {"replay": TaskCheck.FAILED, "verifier_on_replay": TaskCheck.ABSENT}
            return _Finding(checks, Reason.REPLAY_REFUSED, str(error))
        except NotAnswered as error:
            checks = {"replay": TaskCheck.UNKNOWN, "verifier_on_replay": TaskCheck.UNKNOWN}
            return _Finding(checks, Reason.NOT_ANSWERED, str(error))
        if refused is not None:
            checks = {"replay": TaskCheck.FAILED, "verifier_on_replay": TaskCheck.ABSENT}
            return _Finding(checks, Reason.REPLAY_REFUSED, refused)
        if score < self.pass_threshold:
            checks = {"replay": TaskCheck.PASSED, "verifier_on_replay": TaskCheck.FAILED}
            detail = f"the verifier gives the state after the recorded calls {score:g}"
            return _Finding(checks, Reason.REPLAY_NOT_PASSED, detail)
        return _Finding({"replay": TaskCheck.PASSED, "verifier_on_replay": TaskCheck.PASSED})


async def _replay(episode: OpenEpisode) -> tuple[str | None, float]:
    """Return why a call was refused, or None and the score of the state after all of them."""
    script = recorded_calls(episode.task)
    assert script is not None
    number, call = 1, next(script, None)
    while call is not None:
        result = await episode.call(call.name, call.arguments)
        if result.is_error:
            return f"call {number}, {call.name}, is refused: {result.text[:300]}", 0.0
        if result.ends_episode:
            break
        try:
            call, number = script.send(result), number + 1
        except StopIteration:
            break
    return None, await episode.score()


def not_reached(task: Task) -> TaskValidation:
    """Return the row of a task that a stopped validation did not reach."""
    return TaskValidation(
        task_key=task.key,
        env_key=task.env_key,
        verdict=TaskVerdict.UNKNOWN,
        reason=Reason.NOT_REACHED,
        detail="the validation was stopped before",
    )


def _add(row: TaskValidation, finding: _Finding) -> TaskValidation:
    """Add a finding; the first failure gives the reason, else the first unknown check."""
    update: dict[str, object] = dict(finding.checks)
    fails = TaskCheck.FAILED in finding.checks.values() and not _has_failed(row)
    if finding.reason is not None and (row.reason is None or fails):
        update |= {"reason": finding.reason, "detail": finding.detail}
    return row.model_copy(update=update)


def _has_failed(row: TaskValidation) -> bool:
    return TaskCheck.FAILED in (row.replay, row.verifier_on_start, row.verifier_on_replay)
