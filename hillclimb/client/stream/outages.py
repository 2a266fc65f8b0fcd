"""Retries while a service restarts."""

from __future__ import annotations

import time
from http import HTTPStatus

import httpx

from hillclimb.client.errors import ApiProblem, ApiUnreachable, UnexpectedResponse

RECONNECT_FOR_S = 60.0
"""Longest outage that is retried (seconds); a longer one is reported."""


class RetryOutages:
    """Suppresses connection errors and 5xx responses until they have lasted `RECONNECT_FOR_S`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.reset()

    def reset(self) -> None:
        """Start the time anew: the service has responded."""
        self._last_response = time.monotonic()

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not _is_outage(error):
            return False
        if time.monotonic() - self._last_response > RECONNECT_FOR_S:
            raise ApiUnreachable(f"{self._url} does not respond: {error}") from error
        return True


def _is_outage(error: BaseException | None) -> bool:
    if isinstance(error, ApiProblem):
        return error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, UnexpectedResponse):
        return False
    return isinstance(error, httpx.TransportError | ApiUnreachable)
