"""Real vLLM's sleep and wake calls, in the order of colocation; a CPU gives no memory back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from tests.trainer.engines.vllm.late import NEEDS_VLLM, start_vllm
from tests.trainer.engines.vllm.test_vllm import change, prompt
from trainer.engines.base import Sleeps
from trainer.engines.canary import canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import EngineError
from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.sources import resolve_source
from trainer.learners.inline import InlineLearner
from trainer.types import Sample, SamplingParams
from trainer.weights.chunks import IpcSync
from trainer.workers.phase_switch import PhaseSwitch, SwitchedSync

if TYPE_CHECKING:
    from vllm.v1.engine.output_processor import RequestState

    from trainer.engines.vllm.engine import VllmEngine

# vLLM and its own dependencies warn of each other.
pytestmark = [NEEDS_VLLM, pytest.mark.filterwarnings("ignore")]
TOKENS = canary_tokens(2048)
LENGTH = 256
DEADLINE_S = 120.0


class Parking(InlineLearner):
    """A learner beside an engine, with the optimizer's state that it has."""

    async def park(self) -> None:
        self.rank.park()

    async def unpark(self) -> None:
        self.rank.unpark()


@pytest.mark.invariant("an engine that slept samples from the synced weights and from no old cache")
async def test_a_step_of_colocation(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await _take_a_step(tmp_path)


class Colocation:
    """An engine and a learner that take turns, from the engine's first sleep."""

    def __init__(self, model_dir: Path) -> None:
        self.learner = Parking(load_policy(model_dir))
        self.engine = start_vllm(
            VllmOptions(
                model_dir=model_dir, max_length=LENGTH, num_sessions=8, by_chunks=True, sleeps=True
            )
        )
        self.switch = PhaseSwitch(self.learner, [self.engine], level=2)
        self.sync = SwitchedSync(self.switch, IpcSync(self.learner, [self.engine]))

    async def sample(self, length: int, new: int = 4, prefix_key: str = "") -> Sample:
        params = SamplingParams(temperature=1.0, max_new_tokens=new, seed=length)
        return await self.engine.sample(
            prompt(1, length), params, session=f"s{length}", prefix_key=prefix_key
        )

    def step(self, seed: int) -> None:
        change(self.learner, seed=seed)
        self.learner.rank.version += 1


async def _take_a_step(tmp_path: Path) -> None:
    both = Colocation(resolve_source("builtin:tiny-qwen3-a", tmp_path))
    engine = both.engine
    assert isinstance(engine, Sleeps)
    try:
        await engine.sleep(2)
        with (
            pytest.raises(EngineError, match="not woken before its cache"),
            patch.object(engine._llm, "wake_up", _half_awake),
        ):
            await engine.wake_cache()
        await both.sync.sync()
        assert (await both.sample(100)).weight_versions == (0,) * 4
        await _sleep_beside_a_begun_request(both)
        await _sleep_beside_a_received_request(both)
        before = engine.stats().num_prefill_tokens
        await both.sync.sync()
        await both.sample(100)
        assert engine.stats().num_prefill_tokens - before >= 100, "of the cache nothing was left"
        assert await canary_gap(engine, both.learner, TOKENS) < 1e-5
        assert not await engine._llm.is_sleeping()
    finally:
        await engine.close()


async def _sleep_beside_a_begun_request(both: Colocation) -> None:
    """It is completed first; one that is asked for later waits for the next weights."""
    running = asyncio.create_task(both.sample(120, 100, "group"))
    while not _has_begun(both.engine, "s120") and not running.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    await both.switch.to_learner()
    assert len((await running).token_ids) == 100, "it was completed before the engine slept"
    assert await both.engine._llm.is_sleeping()
    waiting = asyncio.create_task(both.sample(100))
    both.step(seed=1)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await both.sync.sync()
    assert (await waiting).weight_versions == (1,) * 4


async def _sleep_beside_a_received_request(both: Colocation) -> None:
    """vLLM, which had not begun it, keeps it for the next weights."""
    await both.engine._llm.pause_generation(mode="wait")
    received = asyncio.create_task(both.sample(130))
    while not _requests(both.engine, "s130"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await both.switch.to_learner()
    both.step(seed=2)
    assert not received.done()
    await both.sync.sync()
    assert (await received).weight_versions == (2,) * 4


def _has_begun(engine: VllmEngine, session: str) -> bool:
    """True once vLLM has returned a first token of the session's own request."""
    return any(not state.is_prefilling for state in _requests(engine, session))


def _requests(engine: VllmEngine, session: str) -> list[RequestState]:
    """The session's own requests; that of its group's prompt has another name."""
    states = engine._llm.output_processor.request_states.items()
    return [state for name, state in states if name.startswith(f"{session}#")]


async def _half_awake(_tags: list[str]) -> bool:
    return False
