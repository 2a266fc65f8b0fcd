"""Exit codes that scripts can rely on, and the sentence printed for each error."""

from __future__ import annotations

from enum import IntEnum

from hillclimb.errors import ApiProblem, ApiUnreachable, HillclimbError, NoCheckpoint, NotConfigured


class Exit(IntEnum):
    """What the command's exit status means."""

    OK = 0
    ERROR = 1
    """An error that none of the others names."""
    USAGE = 2
    """Wrong arguments, or a spec file that cannot be read."""
    RUN_FAILED = 3
    """The run that was waited for failed."""
    RUN_CANCELLED = 4
    """The run that was waited for was cancelled."""
    UNREACHABLE = 5
    """The service does not answer, or none is configured."""
    REFUSED = 6
    """The service refused: bad spec, wrong state, missing right."""
    NOT_FOUND = 7
    """The run, checkpoint or rollout does not exist."""
    RUN_PAUSED = 8
    """The run that was waited for is paused, and goes on only when somebody resumes it."""
    INTERRUPTED = 130
    """Ctrl-C; what was watched goes on."""


RUN_STATUS_EXIT = {
    "succeeded": Exit.OK,
    "failed": Exit.RUN_FAILED,
    "cancelled": Exit.RUN_CANCELLED,
    "paused": Exit.RUN_PAUSED,
}


def exit_for(error: HillclimbError) -> Exit:
    """Return the exit code of an error."""
    if isinstance(error, ApiProblem):
        return Exit.NOT_FOUND if error.status == 404 else Exit.REFUSED
    if isinstance(error, NoCheckpoint):
        return Exit.NOT_FOUND
    if isinstance(error, ApiUnreachable | NotConfigured):
        return Exit.UNREACHABLE
    return Exit.USAGE
