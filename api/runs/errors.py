"""Errors of the runs domain; `api/http/problems.py` alone maps each to an HTTP status.

RunError
├── RunNotFound            no such run in the caller's project
│   └── RunDeleted         there was one, and it was deleted
├── InvalidTransition      the run's status does not allow the request
├── RunImported            the run was imported: there is nothing here to act on
├── RunInUse               something that stays needs the run: it cannot be deleted
├── NothingToResume        no complete checkpoint to resume from
├── SpecOutdated           a spec stored by another version, which this one rejects
├── CheckpointNotFound     lineage.resumed_from names none of the project
├── CheckpointMisfit       the run cannot train on from the checkpoint that it names
├── AddressRefused         the spec names a file or channel that its project may not use
├── ForkRejected           the changes of a fork are not valid
├── LeaseLost              another worker has the lease now
├── AttemptNotFound        no such attempt, or it is another runner's
├── AttemptSuperseded      the attempt has ended or a newer one owns the run
├── AttemptNotClaimed      the first node of its cluster has not claimed it yet
├── UnknownToken           no attempt has this ingest token
├── UnsupportedSchema      events of a schema version that is not accepted
├── GuardTripNotFound      the guard has no such episode
├── RunnerNotFound         no such runner in the caller's project
├── RunnerNameInUse        another runner has that name, or is that runner
└── CursorRejected         no cursor of this service, or of a list with other filters
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hillclimb.protocol.spec_problems import SpecProblem

REASONS_OF_DELETION: Mapping[str, str] = {
    "request": "",
    "retention": ", because it had ended longer ago than HILLCLIMB_KEEP_RUNS_DAYS allows",
    "project": " with its project",
}
"""Ends of the sentence that says who deleted a run, by `DeletedRun.reason`."""


class RunError(Exception):
    """Base class; the message is a sentence for the user."""


class RunNotFound(RunError):
    """No such run in the caller's project."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"There is no run {run_id!r}.")


class RunDeleted(RunNotFound):
    """The caller's project had the run, and it was deleted."""

    def __init__(self, run_id: str, *, name: str, at: datetime, by: str, reason: str) -> None:
        RunError.__init__(
            self,
            f"Run {run_id} ({name}) was deleted by {by} on {at:%Y-%m-%d at %H:%M} UTC"
            f"{REASONS_OF_DELETION[reason]}.",
        )


class RunInUse(RunError):
    """Something that stays needs the run; `problems` name each such thing."""

    def __init__(self, message: str, problems: Sequence[SpecProblem]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class InvalidTransition(RunError):
    """The run's status does not allow the request."""


class RunImported(RunError):
    """The run was imported: the service did not run it and has none of its checkpoints."""


class GuardTripNotFound(RunError):
    """The guard of the run has no such episode."""


class NothingToResume(RunError):
    """No complete checkpoint to resume from."""


class SpecOutdated(RunError):
    """A run's spec was stored by another version, and this one rejects it."""

    def __init__(self, message: str, problems: Sequence[SpecProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class CheckpointNotFound(RunError):
    """`lineage.resumed_from` names no complete checkpoint of the project."""


class CheckpointMisfit(RunError):
    """The run cannot train on from the checkpoint that `lineage.resumed_from` names."""


class AddressRefused(RunError):
    """The spec names a file or a channel that the operator has not opened to its project."""


class DefaultsMisfit(RunError):
    """The spec is valid, but not with the defaults of its project."""


class ModelUnsupported(RunError):
    """The name of the spec's model says that it cannot be trained here."""


class TooManyAnnotations(RunError):
    """A run would have more tags or links than a run may have."""


class ForkRejected(RunError):
    """The changes of a fork are malformed, or their spec is not valid."""

    def __init__(self, message: str, problems: Sequence[SpecProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class LeaseLost(RunError):
    """Another worker has the lease now: the caller discards its result."""


class AttemptNotFound(RunError):
    """No such attempt, or it is another runner's."""


class AttemptSuperseded(RunError):
    """The attempt has ended or a newer one owns the run: its messages are rejected."""


class AttemptNotClaimed(RunError):
    """The first node of the cluster has not claimed the attempt yet: retry."""


class UnknownToken(RunError):
    """No attempt has this ingest token."""


class UnsupportedSchema(RunError):
    """Events of a schema version that is not accepted."""


class RunnerNotFound(RunError):
    """No such runner in the caller's project: it must register again."""


class RunnerNameInUse(RunError):
    """Another runner of the project has that name, or that registration."""


class CursorRejected(RunError):
    """No cursor of this service, or of a list with other filters."""
