"""What a request can meet, and how the protocol says so."""

from __future__ import annotations


class Refused(Exception):
    """The request cannot be done; repeating it would not help.

    A job says it as a failure of the category `user`, a plain request by `status`.
    """

    status = 400


class Busy(Exception):
    """There is no place now; the same request may be taken later."""


class Unknown(Refused):
    """Nothing here has that name: it never was, or it ended with the server before this one."""

    status = 404


class Gone(Refused):
    """A job that this server knows nothing of; the SDK samples again where it hears that."""

    status = 410


class StateInUse(OSError):
    """Two servers would write to one directory."""
