"""The table of end reasons: category, retry policy, next status and wording of each.

Only the reason is stored; everything that a user sees of it derives from this one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from api.runs.status import RunStatus
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.statuses import Category

MAX_FAILURES = 3
"""A run fails after this many failed attempts."""


class AfterEnd(StrEnum):
    """The effect of an attempt's end on its run."""

    SUCCEED = "succeed"
    CANCEL = "cancel"
    PAUSE = "pause"
    RETRY = "retry"
    """A new attempt from the newest checkpoint."""
    FAIL = "fail"


class FailureCounting(StrEnum):
    """The condition under which an end counts toward the run's `MAX_FAILURES`."""

    NEVER = "never"
    WITHOUT_PROGRESS = "without_progress"
    """Only when the attempt saved no checkpoint and validated no task: the next one would start at
    the same point."""
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFacts:
    """One row of the table; `wording` is a sentence for people, without the attempt's message."""

    category: Category
    after: AfterEnd
    counts: FailureCounting = FailureCounting.NEVER
    when_exhausted: AfterEnd = AfterEnd.FAIL
    """The effect once the run has had `MAX_FAILURES`, for a reason that counts."""
    wording: str

    @property
    def retryable(self) -> bool:
        """True when the same spec may succeed next time."""
        return self.after in (AfterEnd.RETRY, AfterEnd.PAUSE)


def _ends(category: Category, after: AfterEnd, wording: str) -> ReasonFacts:
    return ReasonFacts(category=category, after=after, wording=wording)


def _fails_after_retries(category: Category, wording: str) -> ReasonFacts:
    return ReasonFacts(
        category=category, after=AfterEnd.RETRY, counts=FailureCounting.ALWAYS, wording=wording
    )


REASONS: dict[ReasonCode, ReasonFacts] = {
    ReasonCode.COMPLETED: _ends(
        Category.USER, AfterEnd.SUCCEED, "The trainer finished every step."
    ),
    ReasonCode.CANCELLED_BY_USER: _ends(Category.USER, AfterEnd.CANCEL, "A user cancelled it."),
    ReasonCode.PAUSED_BY_USER: _ends(
        Category.USER, AfterEnd.PAUSE, "A user paused it; resume it to continue."
    ),
    ReasonCode.PAUSED_BY_GUARD: _ends(
        Category.USER,
        AfterEnd.PAUSE,
        "A guard paused it; resume once the cause is fixed, or to train on in spite of it.",
    ),
    # Not `succeeded`: steps are missing. Not `failed`: the spec requested the end.
    ReasonCode.STOPPED_BY_GUARD: _ends(
        Category.USER, AfterEnd.CANCEL, "A guard stopped it; its last step is saved."
    ),
    ReasonCode.SPEC_REJECTED: _ends(
        Category.USER, AfterEnd.FAIL, "The spec cannot be executed where it runs."
    ),
    ReasonCode.MODEL_UNAVAILABLE: _ends(
        Category.USER, AfterEnd.FAIL, "The model's files cannot be read."
    ),
    ReasonCode.CHECKPOINT_UNREADABLE: _ends(
        Category.INFRA, AfterEnd.FAIL, "The checkpoint to resume from cannot be read."
    ),
    ReasonCode.ENVIRONMENT_OUTAGE: _ends(
        Category.INFRA,
        AfterEnd.PAUSE,
        "Too many rollouts ended without a grade; resume once the environments respond.",
    ),
    ReasonCode.STEP_TIMEOUT: _ends(
        Category.INFRA,
        AfterEnd.PAUSE,
        "A step took longer than schedule.step_timeout_s; resume once the cause is fixed.",
    ),
    ReasonCode.RUN_TIMEOUT: _ends(
        Category.USER,
        AfterEnd.FAIL,
        "The run took longer than schedule.run_timeout_s; its results until then are kept.",
    ),
    ReasonCode.PLACEMENT_FAILED: _fails_after_retries(
        Category.INFRA, "The trainer's workers could not be placed."
    ),
    ReasonCode.ENGINE_FAILED: _fails_after_retries(Category.INFRA, "The sampling engine failed."),
    ReasonCode.WEIGHT_SYNC_MISMATCH: _ends(
        Category.INTERNAL, AfterEnd.FAIL, "Engine and learner disagreed on the same tokens."
    ),
    ReasonCode.LEARNER_FAILED: _fails_after_retries(Category.INFRA, "The gradient step failed."),
    ReasonCode.NON_FINITE_UPDATE: _ends(
        Category.USER,
        AfterEnd.FAIL,
        "Loss or gradient became NaN or infinite; a lower optimizer.lr may help.",
    ),
    ReasonCode.STORAGE_FULL: _ends(
        Category.INFRA,
        AfterEnd.PAUSE,
        "No space is left for the run's files; free some, then resume.",
    ),
    # Saved checkpoints stay: once the store is back, the run continues.
    ReasonCode.STORE_UNAVAILABLE: ReasonFacts(
        category=Category.INFRA,
        after=AfterEnd.RETRY,
        counts=FailureCounting.WITHOUT_PROGRESS,
        when_exhausted=AfterEnd.PAUSE,
        wording="The blob store, or the model's source, did not respond; resume once it does.",
    ),
    ReasonCode.TRAINER_CRASHED: _fails_after_retries(Category.INFRA, "The trainer crashed."),
    ReasonCode.RUNNER_STOPPED: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "The runner was stopped; the trainer saved a checkpoint."
    ),
    # A run that crashes its machine must not do so for ever.
    ReasonCode.RUNNER_LOST: ReasonFacts(
        category=Category.INFRA,
        after=AfterEnd.RETRY,
        counts=FailureCounting.WITHOUT_PROGRESS,
        wording="The runner sent no heartbeat any more.",
    ),
    ReasonCode.ATTEMPT_SUPERSEDED: _ends(
        Category.INTERNAL, AfterEnd.RETRY, "A newer attempt owns the run."
    ),
    ReasonCode.NO_RUNNER: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "No runner claimed the attempt in time."
    ),
    # Waiting is not failing: `api.scheduling.provisioning` retries with a back-off, and gives up.
    ReasonCode.NO_CAPACITY: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "No candidate's cloud had the machines."
    ),
    ReasonCode.CLUSTER_REFUSED: _ends(
        Category.USER, AfterEnd.FAIL, "No configured cloud grants such machines."
    ),
    # The spec limits how many clusters a run may lose: `max_recoveries`
    # (`api.scheduling.provisioning`).
    ReasonCode.LAUNCH_FAILED: _ends(Category.INFRA, AfterEnd.RETRY, "The cluster did not come up."),
    ReasonCode.PROVISION_TIMEOUT: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "The cluster was not up in time."
    ),
    ReasonCode.CLUSTER_LOST: _ends(
        Category.INFRA,
        AfterEnd.RETRY,
        "The cluster was preempted or failed; the run resumes from its last checkpoint.",
    ),
    ReasonCode.CLUSTER_TIME_UP: _ends(
        Category.USER,
        AfterEnd.PAUSE,
        "The cluster reached backend.skypilot.max_hours; resume to continue on another.",
    ),
    ReasonCode.BUDGET_EXHAUSTED: _ends(
        Category.USER, AfterEnd.PAUSE, "The budget is used up; extend it, then resume."
    ),
    ReasonCode.NODE_UNFIT: _ends(
        Category.INFRA, AfterEnd.RETRY, "A node did not pass its acceptance test."
    ),
    ReasonCode.START_TIMEOUT: _fails_after_retries(
        Category.INFRA, "The trainer was started but sent no event."
    ),
    ReasonCode.STALLED: _fails_after_retries(Category.INFRA, "The trainer made no progress."),
    ReasonCode.FINALIZE_TIMEOUT: _fails_after_retries(
        Category.INFRA, "The trainer's last events did not arrive."
    ),
    ReasonCode.INTERNAL: _fails_after_retries(Category.INTERNAL, "The service failed."),
}

OVERDUE: dict[RunStatus, ReasonCode] = {
    RunStatus.PROVISIONING: ReasonCode.NO_RUNNER,
    RunStatus.STARTING: ReasonCode.START_TIMEOUT,
    RunStatus.RUNNING: ReasonCode.STALLED,
    RunStatus.PAUSING: ReasonCode.PAUSED_BY_USER,
    RunStatus.FINALIZING: ReasonCode.FINALIZE_TIMEOUT,
    RunStatus.CANCELLING: ReasonCode.CANCELLED_BY_USER,
}
"""The reason of an attempt that is ended because its run's status exceeded its deadline."""

FINAL: dict[AfterEnd, RunStatus] = {
    AfterEnd.SUCCEED: RunStatus.SUCCEEDED,
    AfterEnd.CANCEL: RunStatus.CANCELLED,
    AfterEnd.PAUSE: RunStatus.PAUSED,
    AfterEnd.RETRY: RunStatus.RECOVERING,
    AfterEnd.FAIL: RunStatus.FAILED,
}
"""The status of a run whose attempt ended so."""


def status_after(reason: ReasonCode, *, num_failures: int) -> RunStatus:
    """Return the next status of a run whose attempt ended with `reason`.

    `num_failures` includes this end, if it counts.
    """
    facts = REASONS[reason]
    if facts.counts is not FailureCounting.NEVER and num_failures >= MAX_FAILURES:
        return FINAL[facts.when_exhausted]
    return FINAL[facts.after]


def end_reason(code: str, message: str | None) -> dict[str, object]:
    """Return the reason as shown to users: code, category, retryable, message."""
    facts = REASONS[ReasonCode(code)]
    return {
        "code": code,
        "category": facts.category.value,
        "retryable": facts.retryable,
        "message": message or facts.wording,
    }
