"""Why the runs domain refuses; `api/problems.py` alone knows the HTTP status of each.

RunError
├── RunNotFound            no such run in the caller's project
├── InvalidTransition      the run's status does not allow what was asked
├── NothingToResume        no complete checkpoint to go on from
├── SpecOutdated           a spec stored by another version, which this one refuses
├── CheckpointNotFound     lineage.resumed_from names none of the project
├── LeaseLost              another worker holds the run now
├── AttemptNotFound        no such attempt, or it is another runner's
├── AttemptSuperseded      the attempt has ended or a newer one owns the run
├── AttemptNotTaken        the first node of its cluster has not asked yet
├── UnknownToken           no attempt has this ingest token
├── UnsupportedSchema      events of a schema version that is not accepted
├── RunnerNotFound         no such runner in the caller's project
├── IdempotencyKeyReused   the key came with another body before
└── CursorRejected         not a cursor of ours, or of a list with other filters
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.contract.problems import SpecProblem


class RunError(Exception):
    """Base; the message is a sentence for the user."""


class RunNotFound(RunError):
    """No such run in the caller's project."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"There is no run {run_id!r}.")


class InvalidTransition(RunError):
    """The run's status does not allow what was asked."""


class NothingToResume(RunError):
    """No complete checkpoint to go on from."""


class SpecOutdated(RunError):
    """A run's stored spec is of another version, and this one refuses it."""

    def __init__(self, message: str, problems: Sequence[SpecProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class CheckpointNotFound(RunError):
    """`lineage.resumed_from` names no complete checkpoint of the project."""


class LeaseLost(RunError):
    """Another worker holds the run now: drop what was found out."""


class AttemptNotFound(RunError):
    """No such attempt, or it is another runner's."""


class AttemptSuperseded(RunError):
    """The attempt has ended or a newer one owns the run: nothing more of it counts."""


class AttemptNotTaken(RunError):
    """The first node of the cluster has not taken the attempt yet: ask again."""


class UnknownToken(RunError):
    """No attempt has this ingest token."""


class UnsupportedSchema(RunError):
    """Events of a schema version that is not accepted."""


class RunnerNotFound(RunError):
    """No such runner in the caller's project: register again."""


class IdempotencyKeyReused(RunError):
    """The key came with another body before."""


class CursorRejected(RunError):
    """Not a cursor of ours, or of a list with other filters."""
