"""Errors of notices.

NoticeError
├── RateLimited        Slack asks to wait; then retry
├── SlackUnavailable   no usable response; retry with a back-off
├── SlackRefused       Slack will never accept this message
├── RequestForged      a request is not Slack's, is too old, or a replay
├── SlackNotSetUp      the service has no signing secret
├── LinkCodeRejected   a link code is not valid
└── LinkNotFound       no link of that Slack user
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


class RequestForged(NoticeError):
    """A request is not Slack's, is too old, or was received before."""


class SlackNotSetUp(NoticeError):
    """The service has no signing secret, so it cannot tell requests of Slack from others."""


class LinkCodeRejected(NoticeError):
    """A link code is unknown, was used before, or has expired."""


class LinkNotFound(NoticeError):
    """The project has no link of that Slack user."""
