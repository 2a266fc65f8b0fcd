"""Errors of the results of runs.

EvalError
├── IssueClosed         a closed issue does not change
├── IssueNotFound       the project has no such issue
├── IssueRejected       the ledger is full, or a change makes no issue
├── MixedDetectors      versions of the detectors that cannot be compared
├── NoSuchEval          the run has no evaluation at that step
├── NoLedger            the run's compute is not known
├── NoSuchProbe         the run has reported no probe
├── NoSuchRescoring     the run was not rescored by that verifier
├── NoSuchValidation    the run has reported no validation, or its rows are missing
├── NotRescorable       its rollouts cannot be graded again
├── RescoringBusy       other rollouts are being graded again
└── TableRejected       a printed table stands for no numbers of passes
"""


class EvalError(Exception):
    """Base class of the errors in `api.results`."""


class NoSuchEval(EvalError):
    """The run has no evaluation at the requested step."""


class NoLedger(EvalError):
    """The compute of the run is not known; the message says why."""


class NoSuchProbe(EvalError):
    """The run has reported no probe; the message has a hint."""


class NoSuchValidation(EvalError):
    """The run has reported no validation, or its rows are not in the store."""


class TooManyPoints(EvalError):
    """The metric series have more points than one answer has; the message says how to get fewer."""


class NoSuchRescoring(EvalError):
    """The run was not rescored by that version of the verifier."""


class NotRescorable(EvalError):
    """Rollouts of the run cannot be graded again; the message says why."""


class RescoringBusy(EvalError):
    """Other rollouts are being graded again: the request may be repeated."""


class TableRejected(EvalError):
    """A printed table stands for no numbers of passes, or for too many; the message says why."""


class MixedDetectors(EvalError):
    """Rollouts were searched for failure patterns by several versions; the message has a hint."""


class IssueNotFound(EvalError):
    """The project has no such issue; the message is a sentence for the user."""


class IssueRejected(EvalError):
    """The ledger is full, or a change makes no issue; the message says what would do."""


class IssueClosed(EvalError):
    """The issue is closed and does not change."""
