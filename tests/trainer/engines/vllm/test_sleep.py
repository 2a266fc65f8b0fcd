"""Real vLLM's sleep and wake calls, in the order of colocation; a CPU gives no memory back."""

from __future__ import annotations

import asyncio
from pathlib import Path
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


async def _take_a_step(tmp_path: Path) -> None:
    model_dir = resolve_source("builtin:tiny-qwen3-a", tmp_path)
    learner = Parking(load_policy(model_dir))
    engine = start_vllm(
        VllmOptions(
            model_dir=model_dir, max_length=LENGTH, num_sessions=8, by_chunks=True, sleeps=True
        )
    )
    assert isinstance(engine, Sleeps)
    switch = PhaseSwitch(learner, [engine], level=2)
    sync = SwitchedSync(switch, IpcSync(learner, [engine]))

    async def sample(length: int, new: int = 4) -> Sample:
        params = SamplingParams(temperature=1.0, max_new_tokens=new, seed=length)
        return await engine.sample(
            prompt(1, length), params, session=f"s{length}", prefix_key=f"p{length}"
        )

    try:
        await engine.sleep(2)
        with (
            pytest.raises(EngineError, match="not woken before its cache"),
            patch.object(engine._llm, "wake_up", _half_awake),
        ):
            await engine.wake_cache()
        await sync.sync()
        assert (await sample(100)).weight_versions == (0,) * 4
        running = asyncio.create_task(sample(120, 100))
        # Its group's prompt alone, which is computed first, would not keep the engine awake for it.
        while "s120" not in engine._in_flight and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        await switch.to_learner()
        assert len((await running).token_ids) == 100, "it was completed before the engine slept"
        assert await engine._llm.is_sleeping()
        waiting = asyncio.create_task(sample(100))
        change(learner, seed=1)
        learner.rank.version += 1
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await sync.sync()
        assert (await waiting).weight_versions == (1,) * 4
        before = engine.stats().num_prefill_tokens
        await sync.sync()
        await sample(100)
        assert engine.stats().num_prefill_tokens - before >= 100, "of the cache nothing was left"
        assert await canary_gap(engine, learner, TOKENS) < 1e-5
        assert not await engine._llm.is_sleeping()
    finally:
        await engine.close()


async def _half_awake(_tags: list[str]) -> bool:
    return False
