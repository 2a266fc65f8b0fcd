"""The verdict of a task, from what its checks found."""

import pytest

from hillclimb.protocol.validation import (
    Reason,
    TaskCheck,
    TaskValidation,
    TaskVerdict,
    TeacherTries,
    judge,
    summarise_tasks,
)

P, F, U, A = TaskCheck.PASSED, TaskCheck.FAILED, TaskCheck.UNKNOWN, TaskCheck.ABSENT
VALID, EXCLUDED = TaskVerdict.VALID, TaskVerdict.EXCLUDED
UNPROVEN, UNKNOWN = TaskVerdict.UNPROVEN, TaskVerdict.UNKNOWN


def found(
    replay: TaskCheck, start: TaskCheck, after: TaskCheck, tries: tuple[int, int, int] | None = None
) -> TaskValidation:
    teacher = None
    if tries is not None:
        teacher = TeacherTries(passed=tries[0], failed=tries[1], unknown=tries[2])
    return TaskValidation(
        task_key="t",
        env_key="booking",
        replay=replay,
        verifier_on_start=start,
        verifier_on_replay=after,
        teacher=teacher,
        verdict=UNKNOWN,
    )


@pytest.mark.parametrize(
    ("checks", "tries", "verdict", "verdict_if_not_required"),
    [
        ((P, P, P), None, VALID, VALID),
        ((A, P, A), None, UNPROVEN, UNPROVEN),
        ((F, P, A), None, EXCLUDED, EXCLUDED),
        ((P, F, P), None, EXCLUDED, EXCLUDED),
        ((P, P, F), None, EXCLUDED, EXCLUDED),
        ((U, F, U), None, EXCLUDED, EXCLUDED),  # a failure decides, whatever is unknown besides
        ((U, P, U), None, UNKNOWN, UNKNOWN),
        ((P, U, P), None, UNKNOWN, UNKNOWN),
        ((U, P, U), (1, 0, 0), UNKNOWN, UNKNOWN),
        ((A, P, A), (1, 2, 0), VALID, VALID),
        ((A, P, A), (0, 3, 0), EXCLUDED, EXCLUDED),
        ((A, P, A), (0, 2, 1), UNKNOWN, UNKNOWN),
        ((P, P, P), (0, 3, 0), EXCLUDED, VALID),
        ((P, P, P), (0, 0, 1), UNKNOWN, VALID),
    ],
)
def test_the_verdict_follows_from_the_checks(
    checks: tuple[TaskCheck, TaskCheck, TaskCheck],
    tries: tuple[int, int, int] | None,
    verdict: TaskVerdict,
    verdict_if_not_required: TaskVerdict,
) -> None:
    task = found(*checks, tries)
    assert judge(task, teacher_is_required=True).verdict is verdict
    assert judge(task, teacher_is_required=False).verdict is verdict_if_not_required


def test_a_valid_task_keeps_no_reason_and_a_failed_teacher_gives_one() -> None:
    doubtful = found(P, P, P, (0, 1, 0)).model_copy(
        update={"reason": Reason.NOT_ANSWERED, "detail": "once"}
    )
    lenient = judge(doubtful, teacher_is_required=False)
    assert (lenient.reason, lenient.detail) == (None, None)
    strict = judge(doubtful, teacher_is_required=True)
    assert (strict.reason, strict.detail) == (
        Reason.TEACHER_FAILED,
        "the teacher passed in none of 1 try",
    )


def test_a_summary_counts_tasks_and_says_what_is_known() -> None:
    rows = [
        judge(found(P, P, P), teacher_is_required=True),
        judge(
            found(P, F, P).model_copy(update={"reason": Reason.PASSES_UNTOUCHED}),
            teacher_is_required=True,
        ),
        found(U, U, U).model_copy(update={"env_key": "github", "reason": Reason.NOT_REACHED}),
        found(U, U, U).model_copy(update={"env_key": "github", "reason": Reason.NOT_ANSWERED}),
    ]
    summary = summarise_tasks(rows)
    assert summary.num_tasks == 4
    assert summary.verdicts == {"excluded": 1, "unknown": 2, "valid": 1}
    assert summary.environments["github"] == {"unknown": 2}
    assert summary.reasons == {"not_answered": 1, "not_reached": 1, "passes_untouched": 1}
    assert summary.coverage == 0.5
    assert summarise_tasks([]).coverage == 0.0
