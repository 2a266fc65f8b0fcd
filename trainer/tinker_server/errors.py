"""Errors of requests, with their status in the protocol."""

from __future__ import annotations


class RequestRefused(Exception):
    """The request cannot be done; repeating it would not help.

    A job reports it as a failure of the category `user`, a plain request by `status`.
    """

    status = 400


class Busy(Exception):
    """No capacity now; the same request may succeed later."""


class Unknown(RequestRefused):
    """Unknown name: it never existed, or it ended with an earlier server process."""

    status = 404


class Gone(RequestRefused):
    """A job unknown to this server; the SDK then samples again."""

    status = 410


class TooManyJobs(RequestRefused):
    """The session has as many requests under way as it may; the SDK repeats the request later."""

    status = 429


class TooLarge(RequestRefused):
    """A body of more bytes than the server reads."""

    status = 413


class StateInUse(OSError):
    """Two servers would write to one directory."""
