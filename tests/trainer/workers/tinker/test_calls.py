"""Faults of the SDK become faults of the trainer: final ones, and ones another attempt may mend."""

from __future__ import annotations

import asyncio
import threading
import time

import httpx
import pytest
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

from trainer.errors import EngineError, LearnerError, SpecError, TrainerError
from trainer.workers.tinker.calls import answering, aside, awaited, blocking

REQUEST = httpx.Request("POST", "http://127.0.0.1/api/v1/asample")


def status(code: int, said: str = "no") -> tinker.APIStatusError:
    response = httpx.Response(code, request=REQUEST)
    return tinker.APIStatusError("refused", response=response, body={"detail": said})


def wrapped(code: int) -> ValueError:
    """As a future of 0.24.1 raises it."""
    fault = ValueError("Error retrieving result: exceeded 3 retries")
    fault.__cause__ = status(code)
    return fault


def failed(category: RequestErrorCategory) -> tinker.RequestFailedError:
    return tinker.RequestFailedError("Request failed", request_id="r", category=category)


FINAL = [
    *(status(code) for code in (400, 401, 402, 403, 422)),
    wrapped(400),
    failed(RequestErrorCategory.User),
]
PASSING = [
    *(status(code) for code in (404, 409, 410, 429, 500, 503)),
    wrapped(404),
    failed(RequestErrorCategory.Server),
    failed(RequestErrorCategory.Unknown),
    tinker.APIConnectionError(request=REQUEST),
    ValueError("Proto deserialization failed"),
    RetryableException("Promise expired/broken for request r"),
]


def mapped(fault: BaseException, kind: type[TrainerError] = LearnerError) -> TrainerError:
    with pytest.raises(TrainerError) as raised, answering("a gradient", kind, 1.0):
        raise fault
    return raised.value


@pytest.mark.parametrize("fault", FINAL, ids=repr)
def test_what_would_be_refused_again_is_final(fault: BaseException) -> None:
    error = mapped(fault)
    assert isinstance(error, SpecError)
    assert error.reason == "spec_rejected"
    assert error.__cause__ is fault


@pytest.mark.parametrize("fault", PASSING, ids=repr)
@pytest.mark.parametrize("kind", [LearnerError, EngineError])
def test_everything_else_is_of_the_side_that_asked(
    fault: BaseException, kind: type[TrainerError]
) -> None:
    assert type(mapped(fault, kind)) is kind


def test_what_the_server_said_is_told_but_nothing_of_a_refused_key() -> None:
    full = mapped(status(503, "too many adapters"))
    assert "a gradient: too many adapters (HTTP 503)" in str(full)
    for code in (401, 403):
        refused = str(mapped(status(code, "tml-secret")))
        assert "it does not accept the runner's TINKER_API_KEY" in refused
        assert "tml-secret" not in refused


def test_a_failed_request_is_told_in_the_servers_words_alone() -> None:
    told = "Request failed: no such rank for self.request_id='r' and expected type self.model_cls=X"
    fault = tinker.RequestFailedError(told, request_id="r", category=RequestErrorCategory.User)
    assert str(mapped(fault)) == "the Tinker server refused a gradient: no such rank"


async def test_an_answer_that_does_not_come_in_time_is_left_behind() -> None:
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(EngineError, match=r"no answer to a sample in 0\.05 s"):
        await awaited("a sample", EngineError, 0.05, never)
    assert never.cancelled()


async def test_a_call_that_blocks_is_left_behind_too_and_keeps_nothing_waiting() -> None:
    release, began = threading.Event(), time.monotonic()
    with pytest.raises(LearnerError, match=r"no answer to its models in 0\.05 s"):
        blocking("its models", LearnerError, 0.05, release.wait)
    with pytest.raises(LearnerError, match=r"no answer to the weights in 0\.05 s"):
        await aside("the weights", LearnerError, 0.05, release.wait)
    assert time.monotonic() - began < 5.0
    threads = [each for each in threading.enumerate() if each.name == "tinker-call"]
    assert len(threads) == 2
    assert all(each.daemon for each in threads)
    release.set()


async def test_answers_come_through() -> None:
    assert blocking("it", LearnerError, 5.0, lambda: 3) == 3
    assert await aside("it", LearnerError, 5.0, lambda: 4) == 4
