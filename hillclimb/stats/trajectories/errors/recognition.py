"""Tell errors from data among the answers of environments.

An answer is an error if the platform marks it, or if its form says so: an object that reports a
failure as its outcome, or a text that begins as an error does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

MAX_CHARS = 4000
"""An error says what it is at its beginning."""
_SAYS = frozenset(
    {
        *("error", "errors", "message", "msg", "detail", "details", "reason", "code", "status"),
        *("statuscode", "title", "type", "name", "description", "errordescription", "exception"),
        *(
            "errormessage",
            "errormessages",
            "errorcode",
            "category",
            "messages",
            "kind",
            "content",
            "text",
            "hint",
            "loc",
            "issues",
            "fault",
        ),
    }
)
"""Keys, in lower case without `_`, whose values say what went wrong."""
_FAILURE_ALONE = _SAYS | {
    *("success", "ok", "iserror", "requestid", "timestamp", "path", "instance", "data", "result"),
    *("retryable", "documentationurl", "jsonrpc", "id", "traceid", "method", "tool", "input"),
}
"""Keys of an object that reports a failure and nothing else."""
_ERROR_KEYS = ("error", "errors", "exception", "errormessage", "errormessages", "errorcode")
_SUCCESS_KEYS = ("success", "ok")
_STATUS_KEYS = ("statuscode", "status", "code")
_RPC_LOWEST, _RPC_HIGHEST = -32799, -32000
"""Error codes of JSON-RPC."""
MAX_DEPTH = 6
_FAILED = frozenset({"error", "fail", "failed", "failure"})


def error_text(answer: str, *, is_error: bool) -> str | None:
    """Return what an answer says went wrong, at most `MAX_CHARS`; None if nothing did.

    `is_error`: the platform marked the answer as an error.
    """
    text = answer[:MAX_CHARS]
    value = _as_json(answer)
    if isinstance(value, dict):
        if is_error or _reports_failure(value):
            return "\n".join(_words_of(value))[:MAX_CHARS] or text
        return None
    if is_error:
        return text
    if isinstance(value, list):
        return None
    return text if _BEGINS_AS_ERROR.match(text.lstrip()) else None


def _as_json(text: str) -> JsonValue:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _reports_failure(value: Mapping[str, JsonValue]) -> bool:
    """Tell whether an object's outcome, at its top level, is a failure."""
    fields = {key.lower().replace("_", ""): content for key, content in value.items()}
    if any(fields.get(key) for key in _ERROR_KEYS) or fields.get("type") == "error":
        return True
    if fields.get("iserror") is True or any(fields.get(key) is False for key in _SUCCESS_KEYS):
        return True
    return fields.keys() <= _FAILURE_ALONE and _has_failed_status(fields)


def _has_failed_status(fields: Mapping[str, JsonValue]) -> bool:
    status = next((fields[key] for key in _STATUS_KEYS if key in fields), None)
    if isinstance(status, str) and status.isascii() and status.isdecimal():
        status = int(status[:5])
    if isinstance(status, int) and not isinstance(status, bool):
        return 400 <= status < 600 or _RPC_LOWEST <= status <= _RPC_HIGHEST
    if isinstance(status, str):
        explains = any(key in fields for key in ("message", "msg", "detail", "reason", "title"))
        return status.lower() in _FAILED or (explains and bool(_STATUS_NAME.fullmatch(status)))
    return fields.keys() == {"detail"}


def _words_of(value: JsonValue, *, is_fault_text: bool = False, depth: int = 0) -> Iterator[str]:
    """Yield the texts and codes under keys that say what went wrong."""
    if isinstance(value, str) and is_fault_text:
        yield value
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value[:20]:
            yield from _words_of(item, is_fault_text=is_fault_text, depth=depth + 1)
    if isinstance(value, dict):
        for key, content in value.items():
            yield from _words_under(key, content, is_fault_text=is_fault_text, depth=depth)


def _words_under(key: str, content: JsonValue, *, is_fault_text: bool, depth: int) -> Iterator[str]:
    says = key.lower().replace("_", "") in _SAYS
    if says and isinstance(content, str | int) and not isinstance(content, bool):
        yield f"{key}: {content}"
    elif says or isinstance(content, dict | list):
        yield from _words_of(content, is_fault_text=says or is_fault_text, depth=depth + 1)


_STATUS_NAME = re.compile(
    r"(?i)(permission_?denied|unauthori[sz]ed|unauthenticated|forbidden|not_?found|"
    r"invalid_?(argument|request|params?|input)|validation_?(error|failed)|bad_?request|"
    r"access_?denied|unprocessable_?(entity|content)|missing_?\w{1,40}|unknown_?\w{1,40}|"
    r"\w{0,40}(error|exception|denied|not_found)|e?[A-Z]+-?\d{3,5})"
)
_WORDS_OF_STATUS = (
    r"(bad request|unauthori[sz]ed|forbidden|not found|method not allowed|conflict|gone|"
    r"unprocessable|too many requests|internal server error|bad gateway|service unavailable|"
    r"gateway timeout|payment required|client error|server error)"
)
_BEGINS_AS_ERROR = re.compile(
    r"(?i)[\W_]{0,6}(?:"
    r"(?:(?:tool|use|mcp|api|http|runtime|rpc|server|client|request|input|output|schema|argument|"
    r"parameter|execution|internal|database|network|query|unexpected|unhandled|permission|access|"
    r"auth\w{0,14}|value|type|key|syntax|pars\w{1,3}|validation)[ _]?){0,3}error"
    r"(?:\s?[:\-\u2013\u2014(\[>\]]| (?:executing|calling|running|while|code|when|in tool|occurred|"
    r"from|-?\d))"
    r"|(?-i:[A-Za-z_.]{0,80}[a-z](?:Error|Exception|Fault))\b(?! ?[a-z])"
    r"|(?:failed|failure)\s?[:\-]"
    r"|(?:request|call|operation|command|tool|validation) failed\b"
    r"|(?:http[/ ]?[\d.]{0,4} ?|status(?: code)?:? ?)[45]\d\d\b"
    rf"|[45]\d\d\b[ :,\-\u2013]{{1,3}}{_WORDS_OF_STATUS}|[45]\d\d ?[:\u2013] "
    rf"|{_WORDS_OF_STATUS[:-1]}|permission denied|access denied|validation error)\s?"
    r"(?:[:\-\u2013(.]|$)"
    r"|(?-i:PERMISSION_DENIED|NOT_FOUND|INVALID_ARGUMENT|UNAUTHENTICATED|FAILED_PRECONDITION|"
    r"OUT_OF_RANGE|UNAUTHORIZED|FORBIDDEN|BAD_REQUEST|VALIDATION_ERROR|ACCESS_DENIED)\b"
    r"|traceback \(most recent"
    r")"
)
