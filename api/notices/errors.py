"""Errors of telling people.

NoticeError
├── RateLimited        wait as long as Slack says, then again
├── SlackUnavailable   no usable answer: again, later and later
└── SlackRefused       this message will never be accepted
"""


class NoticeError(Exception):
    """Base of the errors in `api.notices`."""


class RateLimited(NoticeError):
    """Slack asked to wait `retry_after_s` seconds."""

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__(f"rate limited for {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class SlackUnavailable(NoticeError):
    """Slack could not be reached or had a fault of its own."""


class SlackRefused(NoticeError):
    """Slack refused the message for a reason that repeating does not change."""
