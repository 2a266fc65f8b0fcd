"""The pool of engines while several requests end at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.trainer.fixtures.tiny import tiny_model
from trainer.tinker_server.model.adapter import ATTENTION, Adapter, Layers
from trainer.tinker_server.model.base import BaseModel
from trainer.tinker_server.model.samplers import MAX_ENGINES, SamplerPool
from trainer.tinker_server.wire import AskSample


def a_request(number: int, max_tokens: int = 4) -> AskSample:
    return AskSample.model_validate(
        {
            "sampling_session_id": f"s-{number}",
            "seq_id": number,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
            "sampling_params": {"max_tokens": max_tokens, "temperature": 0.0},
        }
    )


def adapters(base: BaseModel, root: Path, number: int) -> list[Path]:
    """Directories of as many adapters, none of which changes the model yet."""
    adapter = Adapter(base, Layers(2, ATTENTION), seed=0)
    directories = [root / str(each) for each in range(number)]
    for each in directories:
        adapter.write_adapter(each)
    return directories


async def test_requests_that_end_at_once_end_every_idle_engine_once(tmp_path: Path) -> None:
    """The first of them finds two too many; while it closes one, the other ends the second."""
    base = BaseModel("tiny", tiny_model())
    pool = SamplerPool(base, num_sessions=2, max_length=32)
    directories = adapters(base, tmp_path, 3 * MAX_ENGINES)

    async def answer(number: int) -> list[int]:
        drawn = await pool.answer(str(number), a_request(number), directories[number])
        tokens: list[int] = drawn["sequences"][0]["tokens"]
        return tokens

    drawn = []
    for first in range(0, len(directories), MAX_ENGINES):
        drawn += await asyncio.gather(*map(answer, range(first, first + MAX_ENGINES)))
    assert len(drawn) == 3 * MAX_ENGINES
    assert len({tuple(each) for each in drawn}) == 1
    await pool.close()
