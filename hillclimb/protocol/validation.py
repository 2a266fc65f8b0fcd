"""Results of a validation: checks, verdict and reason of each task, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from hillclimb.spec.documented import Documented

VALIDATION_ROWS = "validation.jsonl.gz"
"""File of the rows in the blob store, relative to the attempt: one JSON object per line."""
TEACHER_USE = "validation.teacher.json"
"""File beside it with the teacher's usage so far, over all attempts: a `TeacherUse`."""


class _Facts(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskCheck(StrEnum):
    """Result of one check of a task."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The environment, the verifier or the teacher's endpoint failed."""
    ABSENT = "absent"
    """There was nothing to check: no recorded calls, or no teacher."""


class TaskVerdict(StrEnum):
    """Verdict on a task."""

    VALID = "valid"
    """Every check passed, and one of them shows that it can be solved."""
    EXCLUDED = "excluded"
    """A check failed: the task is useless for training and evaluation."""
    UNPROVEN = "unproven"
    """No check failed, and none shows that it can be solved."""
    UNKNOWN = "unknown"
    """A check could not be made, which is neither a failure nor a proof."""


class Reason(StrEnum):
    """Reason for which a task is excluded or unknown: a closed list."""

    REPLAY_REFUSED = "replay_refused"
    """A recorded call is refused by the environment."""
    PASSES_UNTOUCHED = "passes_untouched"
    """The verifier passes the start state, in which nothing was done."""
    REPLAY_NOT_PASSED = "replay_not_passed"
    """The verifier does not pass the state after the recorded calls."""
    TEACHER_FAILED = "teacher_failed"
    """The teacher solved it in none of its tries."""
    NOT_ANSWERED = "not_answered"
    """Environment or verifier failed, retries included."""
    TEACHER_CUT_OFF = "teacher_cut_off"
    """An answer of the teacher was truncated, filtered or refused, and no try passes."""
    TEACHER_UNAVAILABLE = "teacher_unavailable"
    """The teacher's endpoint failed or rejects requests, or its budget was used up."""
    NOT_REACHED = "not_reached"
    """The validation was stopped before this task."""


class TeacherTries(_Facts):
    """Numbers of a teacher's tries at one task, by result."""

    passed: int = 0
    failed: int = 0
    unknown: int = 0
    """Tries that the environment or the endpoint ended, or with a truncated answer."""


class TaskValidation(_Facts):
    """One task: what was checked, and the verdict."""

    task_key: str
    env_key: str
    replay: TaskCheck = TaskCheck.ABSENT
    """Recorded calls in a fresh environment: each must be executed."""
    verifier_on_start: TaskCheck = TaskCheck.UNKNOWN
    """A known fail: the untouched start state must not pass."""
    verifier_on_replay: TaskCheck = TaskCheck.ABSENT
    """A known pass: the state after the recorded calls must pass."""
    teacher: TeacherTries | None = None
    verdict: TaskVerdict
    reason: Reason | None = None
    detail: str | None = None
    """The reason as a sentence."""


class TeacherUse(_Facts):
    """Usage of a teacher over the whole run."""

    num_requests: int
    """Retries included."""
    num_retries: int
    input_tokens: int
    output_tokens: int


class ValidationSummary(_Facts):
    """Numbers of tasks by verdict and by reason."""

    num_tasks: int
    verdicts: dict[str, int]
    environments: dict[str, dict[str, int]]
    """Verdicts by environment."""
    reasons: dict[str, int]
    coverage: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of tasks whose verdict is not UNKNOWN."""


def judge(task: TaskValidation, *, teacher_is_required: bool) -> TaskValidation:
    """Return the task with its verdict; `reason` and `detail` of a failed check are kept.

    A failed check decides, even if others are unknown; otherwise an unknown check makes the task
    unknown, unless it is proven without that check.
    """
    tries = task.teacher
    replayed = task.replay is task.verifier_on_replay is TaskCheck.PASSED
    solved = tries is not None and tries.passed > 0
    checks = (task.replay, task.verifier_on_start, task.verifier_on_replay)
    if TaskCheck.FAILED in checks:
        return _with(task, TaskVerdict.EXCLUDED)
    if TaskCheck.UNKNOWN in checks:
        return _with(task, TaskVerdict.UNKNOWN)
    needs_teacher = tries is not None and (teacher_is_required or not replayed)
    if needs_teacher and tries is not None and not solved:
        if tries.unknown:
            return _with(task, TaskVerdict.UNKNOWN)
        total = tries.failed
        detail = f"the teacher passed in none of {total} {'try' if total == 1 else 'tries'}"
        failed = task.model_copy(update={"reason": Reason.TEACHER_FAILED, "detail": detail})
        return _with(failed, TaskVerdict.EXCLUDED)
    proven = TaskVerdict.VALID if replayed or solved else TaskVerdict.UNPROVEN
    return _with(task.model_copy(update={"reason": None, "detail": None}), proven)


def summarise_tasks(rows: Sequence[TaskValidation]) -> ValidationSummary:
    """Return the numbers of a validation."""
    by_env: dict[str, Counter[str]] = {}
    for row in rows:
        by_env.setdefault(row.env_key, Counter())[row.verdict.value] += 1
    unknown = sum(row.verdict is TaskVerdict.UNKNOWN for row in rows)
    return ValidationSummary(
        num_tasks=len(rows),
        verdicts=dict(sorted(Counter(row.verdict.value for row in rows).items())),
        environments={key: dict(sorted(counts.items())) for key, counts in sorted(by_env.items())},
        reasons=dict(sorted(Counter(row.reason.value for row in rows if row.reason).items())),
        coverage=1.0 - unknown / len(rows) if rows else 0.0,
    )


def _with(task: TaskValidation, verdict: TaskVerdict) -> TaskValidation:
    return task.model_copy(update={"verdict": verdict})
