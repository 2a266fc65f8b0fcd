"""Our own Tinker server for tests, in a thread; what it serves, and how a run is pointed at it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hillclimb.spec.backend.tinker import TinkerSpec
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import VOCAB, tiny_model
from trainer.tinker_server.serving import serving
from trainer.tinker_server.settings import TinkerServerSettings
from trainer.workers.tinker.account import TinkerAccount
from trainer.workers.tinker.learner import TinkerLearner, TinkerOptions
from trainer.workers.tinker.service import ModelRequest, TinkerService

KEY, NAME = "tml-tests", "local/tiny"
RANK = 8

SDK_LEAVES_SOCKETS = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning"
)
"""The SDK never closes the connections of its clients; whoever collects them hears of it."""


@contextmanager
def tinker_server(
    model_dir: Path,
    state_dir: Path,
    *,
    port: int = 0,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> Iterator[str]:
    """Serve in a thread with an event loop of its own and yield the base URL."""
    named = {"model_name": NAME} | settings
    given = TinkerServerSettings(model_dir=model_dir, state_dir=state_dir, api_key=KEY, **named)
    urls: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(given, port=port, clock=clock) as url:
            urls.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(30.0)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30.0)
        loop.close()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def write_model(directory: Path) -> Path:
    """The model of `tests.trainer.fixtures.tiny` as a directory."""
    tiny_model().save_pretrained(directory)
    return directory


def open_service(url: str, *, name: str = "run_a-a1", **tinker: Any) -> TinkerService:
    patient = {"lora_rank": RANK, "call_timeout_s": 300.0}
    spec = TinkerSpec.model_validate(patient | tinker)
    wanted = ModelRequest(
        base_model=spec.base_model or NAME,
        tinker=spec,
        max_sequence_length=200,
        seed=5,
        name=name,
    )
    return TinkerService(TinkerAccount(base_url=url, key=KEY), wanted)


def make_learner(service: TinkerService, **settings: Any) -> TinkerLearner:
    given: dict[str, Any] = {
        "algorithm": AlgorithmSpec(),
        "optimizer": OptimizerSpec(lr=1e-2, max_grad_norm=None),
        "lr_warmup_steps": 0,
        "total_steps": 10,
        "max_sequence_length": 200,
        "vocab_size": VOCAB,
        "num_parameters": 0,
    }
    return TinkerLearner(service, TinkerOptions(**given | settings))
