"""The checks of one task: its recorded calls, its verifier on a known fail and a known pass."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.contract.validation import (
    Check,
    Reason,
    TaskValidation,
    TaskVerdict,
    judge,
)
from trainer.errors import DataError
from trainer.types import Task
from trainer.validation.errors import NotAnswered
from trainer.validation.opening import Opened, Opener
from trainer.validation.recorded import recorded_calls
from trainer.validation.teaching import Lessons


@dataclass(frozen=True, slots=True)
class _Finding:
    """What checks found; the first one that did not pass gives the reason."""

    checks: dict[str, Check]
    reason: Reason | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """Checks tasks."""

    opener: Opener
    pass_threshold: float
    lessons: Lessons | None
    """None without a teacher."""
    teacher_is_required: bool = True

    async def check(self, task: Task) -> TaskValidation:
        """Check a task; what fails for reasons that are not the task's leaves it unknown.

        The teacher is not asked about a task that fails without it.

        Raises:
            TrainerError: the run cannot go on.
        """
        found = TaskValidation(task_key=task.key, env_key=task.env_key, verdict=TaskVerdict.UNKNOWN)
        for finding in (await self._start(task), await self._replay(task)):
            found = _add(found, finding)
        failed = Check.FAILED in (found.replay, found.verifier_on_start, found.verifier_on_replay)
        if self.lessons is not None and not failed:
            lesson = await self.lessons.give(task)
            update: dict[str, object] = {"teacher": lesson.tries}
            if found.reason is None:
                update |= {"reason": lesson.reason, "detail": lesson.detail}
            found = found.model_copy(update=update)
        return judge(found, teacher_is_required=self.teacher_is_required)

    async def _start(self, task: Task) -> _Finding:
        """Grade the start state: nobody has done anything."""
        name = "verifier_on_start"
        try:
            score = await self.opener.repeated(task, Opened.score)
        except NotAnswered as error:
            return _Finding({name: Check.UNKNOWN}, Reason.NOT_ANSWERED, str(error))
        if score >= self.pass_threshold:
            detail = f"the verifier gives the untouched start state {score:g}"
            return _Finding({name: Check.FAILED}, Reason.PASSES_UNTOUCHED, detail)
        return _Finding({name: Check.PASSED})

    async def _replay(self, task: Task) -> _Finding:
        """Carry out the recorded calls and grade what they lead to."""
        try:
            if recorded_calls(task) is None:
                return _Finding({"replay": Check.ABSENT, "verifier_on_replay": Check.ABSENT})
            refused, score = await self.opener.repeated(task, _replayed)
        except DataError as error:
            checks = {"replay": Check.FAILED, "verifier_on_replay": Check.ABSENT}
            return _Finding(checks, Reason.REPLAY_REFUSED, str(error))
        except NotAnswered as error:
            checks = {"replay": Check.UNKNOWN, "verifier_on_replay": Check.UNKNOWN}
            return _Finding(checks, Reason.NOT_ANSWERED, str(error))
        if refused is not None:
            checks = {"replay": Check.FAILED, "verifier_on_replay": Check.ABSENT}
            return _Finding(checks, Reason.REPLAY_REFUSED, refused)
        if score < self.pass_threshold:
            checks = {"replay": Check.PASSED, "verifier_on_replay": Check.FAILED}
            detail = f"the verifier gives the state after the recorded calls {score:g}"
            return _Finding(checks, Reason.REPLAY_NOT_PASSED, detail)
        return _Finding({"replay": Check.PASSED, "verifier_on_replay": Check.PASSED})


async def _replayed(opened: Opened) -> tuple[str | None, float]:
    """Return why a call was refused, or None and the score of the state after all of them."""
    script = recorded_calls(opened.task)
    assert script is not None
    number, call = 1, next(script, None)
    while call is not None:
        result = await opened.call(call.name, call.arguments)
        if result.is_error:
            return f"call {number}, {call.name}, is refused: {result.text[:300]}", 0.0
        if result.ends_episode:
            break
        try:
            call, number = script.send(result), number + 1
        except StopIteration:
            break
    return None, await opened.score()


def not_reached(task: Task) -> TaskValidation:
    """Return the row of a task that a stopped validation did not come to."""
    return TaskValidation(
        task_key=task.key,
        env_key=task.env_key,
        verdict=TaskVerdict.UNKNOWN,
        reason=Reason.NOT_REACHED,
        detail="the validation was stopped before",
    )


def _add(found: TaskValidation, finding: _Finding) -> TaskValidation:
    """Add a finding; the first failure gives the reason, else the first that says "unknown"."""
    update: dict[str, object] = dict(finding.checks)
    had_failed = Check.FAILED in (found.replay, found.verifier_on_start, found.verifier_on_replay)
    fails = Check.FAILED in finding.checks.values() and not had_failed
    if finding.reason is not None and (found.reason is None or fails):
        update |= {"reason": finding.reason, "detail": finding.detail}
    return found.model_copy(update=update)
