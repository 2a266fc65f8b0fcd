"""Errors of notices.

NoticeError
├── RateLimited        Slack asks to wait; then retry
├── SlackUnavailable   no usable response; retry with a back-off
└── SlackRefused       Slack will never accept this message
"""


class NoticeError(Exception):
    """Base class of the errors in `api.notices`."""


class RateLimited(NoticeError):
    """Slack asks to wait `retry_after_s` seconds."""

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__(f"rate limited for {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class SlackUnavailable(NoticeError):
    """Slack could not be reached, or failed internally."""


class SlackRefused(NoticeError):
    """Slack rejected the message, and would again."""
