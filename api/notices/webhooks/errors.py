"""Errors of webhooks.

WebhookError
├── WebhookNotFound    the project has no such webhook
├── WebhookRejected    the address cannot be used, or there are too many
└── NotDelivered       no response with a status of success; retry with a back-off
"""


class WebhookError(Exception):
    """Base class of the errors in `api.notices.webhooks`."""


class WebhookNotFound(WebhookError):
    """The project has no such webhook."""


class WebhookRejected(WebhookError):
    """The webhook cannot be stored; the message has the remedy."""


class NotDelivered(WebhookError):
    """The receiver did not accept a message; `status_code` is null without a response."""

    def __init__(self, reason: str, status_code: int | None = None) -> None:
        super().__init__(reason)
        self.status_code = status_code
