"""Faults of Fleet's API by class, with the two facts that decide on a retry.

`is_transient`: the same request may succeed later. The server's `retryable` in the body overrides
the default of its status. `may_be_done`: the request may have been carried out although no response
came, so only a read-only request, or one with an id that the server recognises, may be repeated.

Source: the wire contract's table of errors (detail is a text or `{error_type, message, ...}`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from hillclimb.environment.sanitize import sanitize_unicode

INSTANCE_LIMIT = "instance_limit_exceeded"
DUPLICATE = "duplicate_request_id"
SESSION_LOST = "session_lost"
TIMEOUT = "timeout"
UNREACHABLE = "unreachable"
DROPPED = "dropped"
ODD, TOO_LARGE, NO_JSON, REDIRECT = "odd_answer", "too_large", "no_json", "redirect"
OVERLOAD = frozenset({TIMEOUT, "rate_limit", INSTANCE_LIMIT})
"""Classes after which fewer instances should run at once."""

_COMPLETE = frozenset({ODD, TOO_LARGE, NO_JSON})
"""Classes of faults in a response that came."""
_PERMANENT = (400, 401, 403, 422)
"""Refusals of a request that is wrong or not allowed."""
_GATEWAY = (502, 504)
"""Answers of a proxy that got none."""

HIDDEN = "[the API key]"
SHORTEST_KEY = 8
"""Least length (characters) of a key that is masked: a shorter one occurs in ordinary words."""
MAX_CHARS = 300
"""Characters of a server's message that an error repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    kind: str
    is_transient: bool
    may_be_done: bool


def _is(kind: str, *, transient: bool = False, done: bool = False) -> _Meaning:
    return _Meaning(kind=kind, is_transient=transient, may_be_done=done)


_BY_STATUS: Mapping[int, _Meaning] = {
    400: _is("bad_request"),
    401: _is("unauthorized"),
    403: _is("forbidden"),
    404: _is("not_found"),
    408: _is("request_timeout", transient=True),
    409: _is("conflict"),
    410: _is("gone"),
    422: _is("unprocessable"),
    425: _is("too_early", transient=True),
    429: _is("rate_limit", transient=True),
    500: _is("server_error", transient=True, done=True),
    502: _is("bad_gateway", transient=True, done=True),
    # The server says that it did not handle the request (RFC 9110, 15.6.4).
    503: _is("unavailable", transient=True),
    504: _is("gateway_timeout", transient=True, done=True),
}


@dataclass(eq=False, kw_only=True)
class WireFault(Exception):
    """One request failed."""

    kind: str
    """Its class; counted where this module does not name it (`is_known`)."""
    message: str
    is_transient: bool
    may_be_done: bool
    status: int | None = None
    retry_after_s: float | None = None
    """The server's `Retry-After` (seconds), if any."""
    is_deferred: bool = False
    """True where the operation's time ends before `retry_after_s` is over."""
    is_known: bool = True
    detail: Mapping[str, JsonValue] = field(default_factory=dict)
    """Further fields of the body."""

    def __str__(self) -> str:
        status = f" ({self.status})" if self.status else ""
        return f"{self.kind}{status}: {self.message}"

    @property
    def is_permanent(self) -> bool:
        """True where the server would refuse the same request again."""
        return self.status in _PERMANENT and not self.is_transient

    @property
    def may_come_late(self) -> bool:
        """True where the server may carry out the request later, as it has not answered."""
        if self.status is not None:
            return self.status in _GATEWAY
        return self.may_be_done and self.kind not in _COMPLETE

    @property
    def is_overload(self) -> bool:
        """True for a timeout or a limit of the server."""
        return self.kind in OVERLOAD


@dataclass(eq=False, kw_only=True)
class CallRefused(Exception):
    """The server refuses the call as wrong: a mistake of the policy."""

    message: str


def redact_key(text: str, key: str) -> str:
    """Return a server's text with a note in place of the API key."""
    return text.replace(key, HIDDEN) if len(key) >= SHORTEST_KEY else text


def of_response(status: int, headers: Mapping[str, str], body: bytes, key: str = "") -> WireFault:
    """Return the fault of a response whose status is not 2xx.

    `key`: the API key, which is masked where the server repeats it.
    """
    if 300 <= status < 400:
        return _redirect(status, headers.get("location", "nowhere"))
    body = redact_key(body.decode(errors="replace"), key).encode()
    content = _parse(body)
    detail = content.get("detail", content.get("error", content))
    inner = detail if isinstance(detail, dict) else {}
    name = next((v for k in ("error_type", "error") if isinstance(v := inner.get(k), str)), None)
    usual = _BY_STATUS.get(status) or _is(f"http_{status}", transient=status >= 500, done=True)
    retryable = next(
        (v for v in (inner.get("retryable"), content.get("retryable")) if v is not None), None
    )
    is_transient = retryable if isinstance(retryable, bool) else usual.is_transient
    return WireFault(
        kind=name if name in (INSTANCE_LIMIT, DUPLICATE) else usual.kind,
        message=_message(detail, inner, body),
        is_transient=is_transient,
        # A server that requests a retry did not carry out the request.
        may_be_done=usual.may_be_done and retryable is not True,
        status=status,
        retry_after_s=_seconds(headers.get("retry-after")),
        is_known=status in _BY_STATUS,
        detail=inner,
    )


def odd(message: str) -> WireFault:
    """Return the fault of a successful response that violates the contract."""
    return WireFault(kind=ODD, message=message, is_transient=False, may_be_done=True)


def of_network(error: BaseException, *, was_sent: bool) -> WireFault:
    """Return the fault of a connection error; `was_sent` unless no byte can have left."""
    return WireFault(
        kind=DROPPED if was_sent else UNREACHABLE,
        message=f"{type(error).__name__}: {error}".strip(": "),
        is_transient=True,
        may_be_done=was_sent,
    )


def of_size(max_bytes: int) -> WireFault:
    """Return the fault of a response above the size limit."""
    return WireFault(
        kind=TOO_LARGE,
        message=f"the answer has more than {max_bytes} bytes (max_message_mib)",
        is_transient=False,
        may_be_done=True,
    )


def of_timeout(operation: str, seconds: float) -> WireFault:
    """Return the fault of an operation without a response in time."""
    return WireFault(
        kind=TIMEOUT,
        message=f"{operation} did not answer in {seconds:.1f} s",
        is_transient=True,
        may_be_done=True,
    )


def of_unknown(error: Exception) -> WireFault:
    """Return the fault of an unexpected error, recorded by its class."""
    return WireFault(
        kind=type(error).__name__,
        message=str(error)[:MAX_CHARS],
        is_transient=False,
        may_be_done=True,
        is_known=False,
    )


def _redirect(status: int, location: str) -> WireFault:
    """Return the fault of a redirect: requests carry the key and are sent to no other address."""
    return WireFault(
        kind=REDIRECT,
        message=f"the server leads to {location[:MAX_CHARS]}, where requests do not follow",
        is_transient=False,
        may_be_done=False,
        status=status,
    )


def _parse(body: bytes) -> dict[str, JsonValue]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _message(detail: JsonValue, inner: Mapping[str, JsonValue], body: bytes) -> str:
    message = inner.get("message") or inner.get("error_type") or inner.get("error")
    if isinstance(detail, str):
        message = detail
    text = message if isinstance(message, str) else body[: 4 * MAX_CHARS].decode(errors="replace")
    return sanitize_unicode(text[:MAX_CHARS]) or "no message"


def _seconds(text: str | None) -> float | None:
    """Read `Retry-After` in seconds; Fleet does not use its other form, a date."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None
