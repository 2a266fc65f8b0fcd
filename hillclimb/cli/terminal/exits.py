"""Exit codes of the command line, and their mapping from errors and run statuses."""

from __future__ import annotations

from enum import IntEnum

from hillclimb.client.errors import (
    ApiProblem,
    ApiUnreachable,
    EnvUnknown,
    LadderRefused,
    NoCheckpoint,
    NotConfigured,
    RunUnknown,
)


class Exit(IntEnum):
    """Exit status of a command."""

    OK = 0
    ERROR = 1
    """Any other error."""
    USAGE = 2
    """Wrong arguments, or a spec file that cannot be read."""
    RUN_FAILED = 3
    """The watched run failed."""
    RUN_CANCELLED = 4
    """The watched run was cancelled."""
    UNREACHABLE = 5
    """The service does not respond, or none is configured."""
    REFUSED = 6
    """The service refused the request: invalid spec, wrong state, missing permission. Or an
    acceptance cannot begin: a key, a setting or a GPU is missing."""
    NOT_FOUND = 7
    """The run, checkpoint, rollout or environment does not exist, or was deleted."""
    RUN_PAUSED = 8
    """The watched run is paused until a user resumes it."""
    NOTHING_LEARNED = 9
    """The watched run succeeded, but no step could change its policy."""
    INTERRUPTED = 130
    """Ctrl-C; the watched run continues."""


RUN_STATUS_EXIT = {
    "succeeded": Exit.OK,
    "failed": Exit.RUN_FAILED,
    "cancelled": Exit.RUN_CANCELLED,
    "paused": Exit.RUN_PAUSED,
}


def exit_for(error: Exception) -> Exit:
    """Return the exit code of an error."""
    if isinstance(error, ApiProblem):
        return Exit.NOT_FOUND if error.status in (404, 410) else Exit.REFUSED
    if isinstance(error, LadderRefused):
        return Exit.REFUSED
    if isinstance(error, NoCheckpoint | RunUnknown | EnvUnknown):
        return Exit.NOT_FOUND
    if isinstance(error, ApiUnreachable | NotConfigured):
        return Exit.UNREACHABLE
    return Exit.USAGE
