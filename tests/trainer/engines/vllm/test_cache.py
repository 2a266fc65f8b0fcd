"""Real vLLM with a cache of two rollouts: the others wait, and no token is computed twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import torch

from hillclimb.hardware.model.shipped import assets_dir
from tests.trainer.engines.vllm.late import NEEDS_VLLM, start_vllm
from trainer.engines.admission import CacheClaim
from trainer.engines.vllm.options import VllmOptions
from trainer.types import SamplingParams

if TYPE_CHECKING:
    from trainer.engines.vllm.engine import VllmEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    NEEDS_VLLM,
    # vLLM and its own dependencies warn of each other.
    pytest.mark.filterwarnings("ignore"),
]
# What `trainer.engines.vllm.builds` asks for on a CPU, and vLLM's own choice on a GPU.
BLOCK = 16 if torch.cuda.is_available() else 32
LENGTH, TURNS = 256, 3
CACHE = 2 * LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallCache(VllmOptions):
    def engine_arguments(self) -> dict[str, Any]:
        blocks = {"num_gpu_blocks_override": CACHE // BLOCK + 1}  # one is never used
        return VllmOptions.engine_arguments(self) | blocks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[VllmEngine]:
    model_dir = assets_dir() / "tiny-qwen3-a"
    made = start_vllm(SmallCache(model_dir=model_dir, max_length=LENGTH, num_sessions=8))
    yield made
    await made.close()


def ids(seed: int, length: int) -> list[int]:
    return torch.randint(10, 2000, (length,), generator=torch.manual_seed(seed)).tolist()


async def play(engine: VllmEngine, number: int) -> int:
    """Play an episode; return the tokens of its last prompt."""
    name, prompt = f"s{number}", ids(number, 100)
    await engine.admit(CacheClaim(session=name, num_own=LENGTH))
    for turn in range(TURNS):
        params = SamplingParams(temperature=1.0, max_new_tokens=16, seed=turn)
        sample = await engine.sample(prompt, params, session=name, prefix_key="")
        length = len(prompt)
        prompt = [*prompt, *sample.token_ids, *ids(100 + number, 20)]
        await asyncio.sleep(0.01)
    engine.release(name)
    return length


@pytest.mark.long
async def test_waiting_for_room_spares_vllm_computing_again(engine: VllmEngine) -> None:
    lengths = await asyncio.gather(*(play(engine, number) for number in range(6)))
    stats = engine.stats()
    assert stats.num_cache_waits == 4
    assert stats.num_cache_tokens == CACHE
    # Only whole blocks are cached: of each later turn up to one block is computed again.
    spare = len(lengths) * (TURNS - 1) * BLOCK
    assert sum(lengths) <= stats.num_prefill_tokens + stats.num_sampled_tokens
    assert stats.num_prefill_tokens <= sum(lengths) - (TURNS - 1) * 16 * len(lengths) + spare
