"""Errors of the live part.

LiveError
└── ReadFailed    the events table could not be read; the stream waits or is re-opened
"""


class LiveError(Exception):
    """Base of the errors in `api.http.live`."""


class ReadFailed(LiveError):
    """The database did not answer."""
