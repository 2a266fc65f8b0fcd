"""Client of Slack's Web API: posts and updates messages, opens forms, classifies errors."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from api.notices.errors import RateLimited, SlackRefused, SlackUnavailable
from api.notices.slack.blocks import Message

TIMEOUT_S = 10.0
DEFAULT_RETRY_AFTER_S = 30.0
TRANSIENT_ERRORS = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)
"""Error codes of Slack that a retry may not get; all others are final."""
RESPONSE_HOST = "hooks.slack.com"
"""The host of the addresses at which Slack takes replies to commands and buttons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The ids of a posted message, which replies need."""

    channel: str
    ts: str


class Slack(Protocol):
    """Posts messages; every method raises a `NoticeError`."""

    def post(self, channel: str, message: Message, *, thread_ts: str | None) -> Posted:
        """Post a message, as a reply with `thread_ts`."""

    def update(self, posted: Posted, message: Message) -> None:
        """Replace a message that was posted."""

    def post_to_user(
        self, channel: str, user: str, message: Message, *, thread_ts: str | None
    ) -> None:
        """Post a message that only one user of the channel sees."""

    def open_form(self, trigger_id: str, view: Mapping[str, Any]) -> None:
        """Open a form for the user of a trigger, which ends three seconds after their click."""

    def respond(self, response_url: str, body: Mapping[str, Any]) -> None:
        """Reply to a command or a button at the address that came with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackApi:
    """Slack's Web API over HTTP; tests set `base_url` to a fake.

    Every method raises:
        RateLimited: Slack asks to wait.
        SlackUnavailable: no response, or one that may differ next time.
        SlackRefused: Slack will never accept this message.
    """

    token: str = field(repr=False)
    base_url: str = "https://slack.com/api"
    timeout_s: float = TIMEOUT_S

    def post(self, channel: str, message: Message, *, thread_ts: str | None) -> Posted:
        """Post a message, as a reply with `thread_ts`."""
        answer = self._call(
            "chat.postMessage", {"channel": channel} | _body(message) | _in_thread(thread_ts)
        )
        if "ts" not in answer:
            raise SlackRefused(str(answer.get("error", "unknown_error")))
        return Posted(channel=str(answer.get("channel", channel)), ts=str(answer["ts"]))

    def update(self, posted: Posted, message: Message) -> None:
        """Replace a message that was posted."""
        self._call("chat.update", {"channel": posted.channel, "ts": posted.ts} | _body(message))

    def post_to_user(
        self, channel: str, user: str, message: Message, *, thread_ts: str | None
    ) -> None:
        """Post a message that only one user of the channel sees."""
        place = {"channel": channel, "user": user} | _in_thread(thread_ts)
        self._call("chat.postEphemeral", place | _body(message))

    def open_form(self, trigger_id: str, view: Mapping[str, Any]) -> None:
        """Open a form for the user of a trigger, which ends three seconds after their click."""
        self._call("views.open", {"trigger_id": trigger_id, "view": view})

    def identify(self) -> Mapping[str, Any]:
        """Return whose token it is: `team`, `team_id`, `user`."""
        return self._call("auth.test", {})

    def delete(self, posted: Posted) -> None:
        """Delete a message of the bot."""
        self._call("chat.delete", {"channel": posted.channel, "ts": posted.ts})

    def respond(self, response_url: str, body: Mapping[str, Any]) -> None:
        """Reply to a command or a button at the address that came with it.

        An address elsewhere than at Slack is refused. It needs no token, and gets none.
        """
        if not self._is_of_slack(response_url):
            raise SlackRefused("the response_url is no address of Slack")
        response = _checked(self._send(response_url, body, headers={}))
        if response.status_code >= 400:
            raise SlackRefused(f"HTTP {response.status_code}")

    def _is_of_slack(self, url: str) -> bool:
        parts, own = urlsplit(url), urlsplit(self.base_url)
        is_hook = parts.scheme == "https" and parts.netloc == RESPONSE_HOST
        return is_hook or (parts.scheme, parts.netloc) == (own.scheme, own.netloc)

    def _call(self, method: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        url = f"{self.base_url.rstrip('/')}/{method}"
        response = _checked(
            self._send(url, body, headers={"Authorization": f"Bearer {self.token}"})
        )
        if response.status_code >= 300:
            raise SlackUnavailable(f"HTTP {response.status_code}")
        return _accepted(response)

    def _send(
        self, url: str, body: Mapping[str, Any], *, headers: Mapping[str, str]
    ) -> httpx.Response:
        try:
            return httpx.post(
                url,
                json=body,
                headers=dict(headers),
                timeout=self.timeout_s,
                verify=_certificates(),
            )
        except httpx.HTTPError as error:
            raise SlackUnavailable(f"{type(error).__name__}: {error}") from error


def make_slack(token: SecretStr | None, base_url: str) -> SlackApi | None:
    """Return the client of a bot token; null without one."""
    secret = "" if token is None else token.get_secret_value()
    return SlackApi(token=secret, base_url=base_url) if secret else None


def _body(message: Message) -> dict[str, Any]:
    return {"text": message.text, "blocks": list(message.blocks), "unfurl_links": False}


def _in_thread(thread_ts: str | None) -> dict[str, Any]:
    return {} if thread_ts is None else {"thread_ts": thread_ts}


@cache
def _certificates() -> ssl.SSLContext:
    """Return the TLS context, loaded once: it takes 50 ms."""
    return httpx.create_ssl_context()


def _checked(response: httpx.Response) -> httpx.Response:
    if response.status_code == 429:
        raise RateLimited(retry_after_s=_retry_after(response))
    if response.status_code >= 500:
        raise SlackUnavailable(f"HTTP {response.status_code}")
    return response


def _accepted(response: httpx.Response) -> Mapping[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise SlackUnavailable("the response is not JSON") from error
    if not isinstance(answer, dict):
        raise SlackUnavailable("the response is not an object")
    if answer.get("ok") is True:
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
