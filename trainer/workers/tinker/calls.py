"""Calls to the SDK: each gets a deadline, and every fault becomes an error of the trainer.

The SDK itself retries requests that a busy server refused (408, 409, 429, 5xx, lost connections),
for minutes or for ever, so calls are not retried here, only bounded by a deadline. A fault that
would recur in another attempt is a `SpecError`; after any other a new attempt may resume.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

from trainer.attempt.daemon_thread import start_in_daemon_thread
from trainer.errors import SpecError, TrainerError

T = TypeVar("T")

_BEFORE, _AFTER = "Request failed: ", " for self.request_id"
"""What the SDK's message has around the server's."""
_FAULTS = (
    tinker.TinkerError,
    httpx.HTTPError,
    # A future of the SDK 0.24.1 raises ValueError for a refusal, with the refusal as its cause.
    ValueError,
    AssertionError,
    # A request that the server no longer knows (410), as after a restart.
    RetryableException,
)
_FINAL = frozenset({400, 401, 402, 403, 413, 422})
"""Status codes of final refusals. 404 is none: a restarted server has lost its models, which a
new attempt creates again."""
_KEY_REFUSED = frozenset({401, 403})


@contextmanager
def answering(what: str, kind: type[TrainerError], seconds: float) -> Iterator[None]:
    """Turn the SDK's errors in the block into errors of the trainer.

    `what` names the request in messages; `kind` is raised where another attempt may succeed.

    Raises:
        SpecError: the server refuses, and would refuse again.
        TrainerError: of `kind`, for everything else.
    """
    try:
        yield
    except TrainerError:
        raise
    except TimeoutError as late:
        raise kind(f"the Tinker server gave no answer to {what} in {seconds:g} s") from late
    except _FAULTS as fault:
        refusal = _refusal(fault)
        error = SpecError if is_final(fault) else kind
        raise error(f"the Tinker server refused {what}: {refusal}") from fault


def is_final(fault: BaseException) -> bool:
    """Tell whether the same request would be refused again."""
    if isinstance(fault, tinker.RequestFailedError):
        return fault.category is RequestErrorCategory.User
    status = status_of(fault)
    return status in _FINAL


def status_of(fault: BaseException) -> int | None:
    """Return the HTTP status behind a fault, if there is one."""
    for each in (fault, fault.__cause__):
        if isinstance(each, tinker.APIStatusError):
            return each.status_code
    return None


def is_full(fault: BaseException | None) -> bool:
    """Tell whether a server refused an adapter because it trains as many as it can.

    `hillclimb tinker serve` and SkyRL 0.3.0 say so in these words; the protocol has no others.
    """
    is_failure = isinstance(fault, tinker.RequestFailedError)
    return is_failure and "maximum number of lora adapters" in str(fault).lower()


def _refusal(fault: BaseException) -> str:
    """Return the server's message without the SDK's wrapping; it never holds the key."""
    if status_of(fault) in _KEY_REFUSED:
        return "it does not accept the runner's TINKER_API_KEY"
    for each in (fault, fault.__cause__):
        if isinstance(each, tinker.APIStatusError) and isinstance(each.body, dict):
            message = each.body.get("detail") or each.body.get("message")
            if message:
                return f"{message} (HTTP {each.status_code})"
    if isinstance(fault, tinker.RequestFailedError):
        message, end, _ = str(fault).partition(_BEFORE)[2].rpartition(_AFTER)
        if end:
            return message
    return f"{type(fault).__name__}: {fault}"


async def awaited(what: str, kind: type[TrainerError], seconds: float, answer: Awaitable[T]) -> T:
    """Wait for an answer on this event loop.

    Raises:
        SpecError, TrainerError: as `answering`.
    """
    with answering(what, kind, seconds):
        async with asyncio.timeout(seconds):
            return await answer


def blocking(what: str, kind: type[TrainerError], seconds: float, call: Callable[[], T]) -> T:
    """Make a blocking call, from any thread, and abandon it after `seconds`.

    Raises:
        SpecError, TrainerError: as `answering`.
    """
    with answering(what, kind, seconds):
        return start_in_daemon_thread(call, name="tinker-call").result(seconds)


async def aside(what: str, kind: type[TrainerError], seconds: float, call: Callable[[], T]) -> T:
    """As `blocking`, in a thread, so that the event loop stays free.

    Raises:
        SpecError, TrainerError: as `answering`.
    """
    return await awaited(
        what, kind, seconds, asyncio.wrap_future(start_in_daemon_thread(call, name="tinker-call"))
    )
