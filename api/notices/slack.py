"""Client of Slack's Web API: posts messages and classifies errors."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import httpx

from api.notices.errors import RateLimited, SlackRefused, SlackUnavailable
from api.notices.messages import Message

TIMEOUT_S = 10.0
DEFAULT_RETRY_AFTER_S = 30.0
TRANSIENT_ERRORS = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)
"""Error codes of Slack that a retry may not get; all others are final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The ids of a posted message, which replies need."""

    channel: str
    ts: str


class Slack(Protocol):
    """Posts messages."""

    def post(self, channel: str, message: Message, *, thread_ts: str | None) -> Posted:
        """Post a message, as a reply with `thread_ts`; raises a `NoticeError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackApi:
    """Slack's Web API over HTTP; tests set `base_url` to a fake."""

    token: str
    base_url: str = "https://slack.com/api"
    timeout_s: float = TIMEOUT_S

    def post(self, channel: str, message: Message, *, thread_ts: str | None) -> Posted:
        """Post a message.

        Raises:
            RateLimited: Slack asks to wait.
            SlackUnavailable: no response, or one that may differ next time.
            SlackRefused: Slack will never accept this message.
        """
        body: dict[str, Any] = {
            "channel": channel,
            "text": message.text,
            "blocks": list(message.blocks),
            "unfurl_links": False,
        }
        if thread_ts is not None:
            body["thread_ts"] = thread_ts
        answer = self._call("chat.postMessage", body)
        return Posted(channel=str(answer.get("channel", channel)), ts=str(answer["ts"]))

    def _call(self, method: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            response = httpx.post(
                f"{self.base_url.rstrip('/')}/{method}",
                json=body,
                headers={"Authorization": f"Bearer {self.token}"},
                timeout=self.timeout_s,
                verify=_certificates(),
            )
        except httpx.HTTPError as error:
            raise SlackUnavailable(f"{type(error).__name__}: {error}") from error
        if response.status_code == 429:
            raise RateLimited(retry_after_s=_retry_after(response))
        if response.status_code >= 300:
            raise SlackUnavailable(f"HTTP {response.status_code}")
        return _accepted(response)


@cache
def _certificates() -> ssl.SSLContext:
    """Return the TLS context, loaded once: it takes 50 ms."""
    return httpx.create_ssl_context()


def _accepted(response: httpx.Response) -> Mapping[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise SlackUnavailable("the response is not JSON") from error
    if not isinstance(answer, dict):
        raise SlackUnavailable("the response is not an object")
    if answer.get("ok") is True and "ts" in answer:
        return answer
    code = str(answer.get("error", "unknown_error"))
    if code == "ratelimited":
        raise RateLimited(retry_after_s=_retry_after(response))
    if code in TRANSIENT_ERRORS:
        raise SlackUnavailable(code)
    raise SlackRefused(code)


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(1.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return DEFAULT_RETRY_AFTER_S
