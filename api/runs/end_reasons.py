"""What each end reason means: whose fault, whether to try again, where it leads, how it reads.

The reason is the fact that is stored; everything a user sees of it derives from this one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from api.runs.status import RunStatus
from trainer.contract.reasons import ReasonCode

MAX_FAILURES = 3
"""A run whose attempts failed this often stops trying."""


class Category(StrEnum):
    """Whose fault an end is."""

    USER = "user"
    INFRA = "infra"
    CAPACITY = "capacity"
    INTERNAL = "internal"


class AfterEnd(StrEnum):
    """What the end of an attempt with this reason means for its run."""

    SUCCEED = "succeed"
    CANCEL = "cancel"
    PAUSE = "pause"
    RETRY = "retry"
    """A new attempt from the newest checkpoint."""
    FAIL = "fail"


class Counts(StrEnum):
    """When an end uses up one of the run's `MAX_FAILURES`."""

    NEVER = "never"
    WITHOUT_PROGRESS = "without_progress"
    """When the attempt saved no checkpoint and validated no task: the next one would start where
    this one did."""
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonFacts:
    """One row of the table; `wording` is a sentence for people, without the attempt's message."""

    category: Category
    after: AfterEnd
    counts: Counts = Counts.NEVER
    at_last: AfterEnd = AfterEnd.FAIL
    """What it means once the run's failures are used up, if it counts."""
    wording: str

    @property
    def retryable(self) -> bool:
        """True when the same spec may well succeed next time."""
        return self.after in (AfterEnd.RETRY, AfterEnd.PAUSE)


def _ends(category: Category, after: AfterEnd, wording: str) -> ReasonFacts:
    return ReasonFacts(category=category, after=after, wording=wording)


def _fails_after_retries(category: Category, wording: str) -> ReasonFacts:
    return ReasonFacts(
        category=category, after=AfterEnd.RETRY, counts=Counts.ALWAYS, wording=wording
    )


REASONS: dict[ReasonCode, ReasonFacts] = {
    ReasonCode.COMPLETED: _ends(
        Category.USER, AfterEnd.SUCCEED, "The trainer finished every step."
    ),
    ReasonCode.CANCELLED_BY_USER: _ends(Category.USER, AfterEnd.CANCEL, "A user cancelled it."),
    ReasonCode.PAUSED_BY_USER: _ends(
        Category.USER, AfterEnd.PAUSE, "A user paused it; resume it to go on."
    ),
    ReasonCode.SPEC_REJECTED: _ends(
        Category.USER, AfterEnd.FAIL, "The spec cannot be carried out where it runs."
    ),
    ReasonCode.MODEL_UNAVAILABLE: _ends(
        Category.USER, AfterEnd.FAIL, "The model's files cannot be read."
    ),
    ReasonCode.CHECKPOINT_UNREADABLE: _ends(
        Category.INFRA, AfterEnd.FAIL, "The checkpoint to go on from cannot be read."
    ),
    ReasonCode.ENVIRONMENT_OUTAGE: _ends(
        Category.INFRA,
        AfterEnd.PAUSE,
        "Too many rollouts ended without a grade; resume once the environments answer.",
    ),
    ReasonCode.STEP_TIMEOUT: _ends(
        Category.INFRA,
        AfterEnd.PAUSE,
        "A step took longer than schedule.step_timeout_s; resume once what hung is mended.",
    ),
    ReasonCode.RUN_TIMEOUT: _ends(
        Category.USER,
        AfterEnd.FAIL,
        "The run took longer than schedule.run_timeout_s; what it had by then is kept.",
    ),
    ReasonCode.PLACEMENT_FAILED: _fails_after_retries(
        Category.INFRA, "There was no place for the trainer's workers."
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
    # What is saved stays saved: once the store is back, the run goes on.
    ReasonCode.STORE_UNAVAILABLE: ReasonFacts(
        category=Category.INFRA,
        after=AfterEnd.RETRY,
        counts=Counts.WITHOUT_PROGRESS,
        at_last=AfterEnd.PAUSE,
        wording="The blob store, or the model's source, did not answer; resume once it does.",
    ),
    ReasonCode.TRAINER_CRASHED: _fails_after_retries(Category.INFRA, "The trainer died."),
    ReasonCode.RUNNER_STOPPED: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "The runner was stopped; the trainer checkpointed."
    ),
    # A run that takes its machine down with it must not do so for ever.
    ReasonCode.RUNNER_LOST: ReasonFacts(
        category=Category.INFRA,
        after=AfterEnd.RETRY,
        counts=Counts.WITHOUT_PROGRESS,
        wording="The runner was not heard from any more.",
    ),
    ReasonCode.ATTEMPT_SUPERSEDED: _ends(
        Category.INTERNAL, AfterEnd.RETRY, "A newer attempt owns the run."
    ),
    ReasonCode.NO_RUNNER: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "No runner claimed the attempt in time."
    ),
    # Waiting is not failing: `api.runs.attempts` asks again later, and gives up in time.
    ReasonCode.NO_CAPACITY: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "No candidate's cloud had the machines."
    ),
    ReasonCode.CLUSTER_REFUSED: _ends(
        Category.USER, AfterEnd.FAIL, "No cloud that is set up lets us have such machines."
    ),
    # How many clusters a run may lose is in its spec: `max_recoveries` (`api.clusters.asking`).
    ReasonCode.LAUNCH_FAILED: _ends(Category.INFRA, AfterEnd.RETRY, "The cluster did not come up."),
    ReasonCode.PROVISION_TIMEOUT: _ends(
        Category.CAPACITY, AfterEnd.RETRY, "The cluster was not there in time."
    ),
    ReasonCode.CLUSTER_LOST: _ends(
        Category.INFRA,
        AfterEnd.RETRY,
        "The cluster was taken back or died; the run goes on from its last checkpoint.",
    ),
    ReasonCode.CLUSTER_TIME_UP: _ends(
        Category.USER,
        AfterEnd.PAUSE,
        "The cluster reached backend.skypilot.max_hours; resume to go on with another.",
    ),
    ReasonCode.BUDGET_EXHAUSTED: _ends(
        Category.USER, AfterEnd.PAUSE, "The budget is used up; extend it, then resume."
    ),
    ReasonCode.NODE_UNFIT: _ends(
        Category.INFRA, AfterEnd.RETRY, "A node did not pass its acceptance test."
    ),
    ReasonCode.START_TIMEOUT: _fails_after_retries(
        Category.INFRA, "The trainer was started but sent nothing."
    ),
    ReasonCode.STALLED: _fails_after_retries(Category.INFRA, "The trainer made no progress."),
    ReasonCode.FINALIZE_TIMEOUT: _fails_after_retries(
        Category.INFRA, "The end of the trainer's events did not arrive."
    ),
    ReasonCode.INTERNAL: _fails_after_retries(Category.INTERNAL, "The service made a mistake."),
}

OVERDUE: dict[RunStatus, ReasonCode] = {
    RunStatus.PROVISIONING: ReasonCode.NO_RUNNER,
    RunStatus.STARTING: ReasonCode.START_TIMEOUT,
    RunStatus.RUNNING: ReasonCode.STALLED,
    RunStatus.PAUSING: ReasonCode.PAUSED_BY_USER,
    RunStatus.FINALIZING: ReasonCode.FINALIZE_TIMEOUT,
    RunStatus.CANCELLING: ReasonCode.CANCELLED_BY_USER,
}
"""The reason of an attempt that is ended because its run's status lasted too long."""

FINAL: dict[AfterEnd, RunStatus] = {
    AfterEnd.SUCCEED: RunStatus.SUCCEEDED,
    AfterEnd.CANCEL: RunStatus.CANCELLED,
    AfterEnd.PAUSE: RunStatus.PAUSED,
    AfterEnd.RETRY: RunStatus.RECOVERING,
    AfterEnd.FAIL: RunStatus.FAILED,
}
"""Where a run goes when its attempt ends so."""


def status_after(reason: ReasonCode, *, num_failures: int) -> RunStatus:
    """Return where a run goes whose attempt ended with `reason`.

    `num_failures` counts this end too, if it counts.
    """
    facts = REASONS[reason]
    if facts.counts is not Counts.NEVER and num_failures >= MAX_FAILURES:
        return FINAL[facts.at_last]
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
