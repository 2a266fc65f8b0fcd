"""Errors of live streams.

LiveError
└── ReadFailed    the events table could not be read; the stream waits or the client reconnects
"""


class LiveError(Exception):
    """Base class of the errors in `api.http.live`."""


class ReadFailed(LiveError):
    """The database did not respond."""
