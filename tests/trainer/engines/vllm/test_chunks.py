"""Weights from the learner's process straight into vLLM's, both ways."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import psutil
import pytest

from tests.trainer.engines.vllm.late import start_vllm
from tests.trainer.engines.vllm.test_vllm import change
from trainer.engines.canary import canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import EngineError, WeightSyncMismatch
from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.sources import resolve_source
from trainer.learners.inline import InlineLearner
from trainer.learners.saved import sending
from trainer.learners.saved.sending import Sender
from trainer.weights.chunks import (
    BroadcastSync,
    ChunkSync,
    IpcSync,
    WeightChunk,
    WeightChunks,
    chunk_weights,
)

if TYPE_CHECKING:
    from trainer.engines.vllm.engine import VllmEngine

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = canary_tokens(2048)


class Forgetful(InlineLearner):
    """Leaves one tensor out, once `forgets`."""

    forgets = ""

    async def chunks(self) -> WeightChunks:
        whole = await super().chunks()
        kept = (self._without(chunk) for chunk in whole.chunks)
        return WeightChunks(whole.version, tuple(chunk for chunk in kept if chunk))

    def _without(self, chunk: WeightChunk) -> WeightChunk:
        return tuple(tensor for tensor in chunk if tensor.name != self.forgets)


@pytest.mark.invariant("changed weights reach vLLM whole, over IPC and by broadcast")
@pytest.mark.parametrize("way", [BroadcastSync, IpcSync])
async def test_changed_weights_arrive_piece_by_piece_and_a_missing_tensor_is_noticed(
    way: type[ChunkSync], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "chunk_weights", partial(chunk_weights, limit=1_000_000))
    model_dir = resolve_source("builtin:tiny-qwen3-a", tmp_path)
    learner = Forgetful(load_policy(model_dir))
    num_pieces = len((await learner.chunks()).chunks)
    assert num_pieces > 3
    engine = start_vllm(
        VllmOptions(model_dir=model_dir, max_length=256, num_sessions=8, by_chunks=True)
    )
    sync = way(learner, [engine])
    try:
        for seed in range(2):
            change(learner, seed=seed)
            learner.rank.version += 1
            if seed:
                with pytest.raises(WeightSyncMismatch):
                    await canary_gap(engine, learner, TOKENS)
            await sync.sync()
            assert await canary_gap(engine, learner, TOKENS) < 1e-5
            assert engine.weight_version == learner.version
        await drifts_on_its_way(learner, sync)
        assert await canary_gap(engine, learner, TOKENS) < 1e-4, "the canary lets that through"
        change(learner, seed=7)
        learner.forgets = "model.layers.1.mlp.down_proj.weight"
        with pytest.raises(WeightSyncMismatch, match=f": {learner.forgets} was not sent$"):
            await sync.sync()
        with pytest.raises(WeightSyncMismatch):
            await canary_gap(engine, learner, TOKENS)
        assert list(engine._sockets.iterdir())
        await fails_in_an_update(engine, (await learner.chunks()).chunks[0], way)
    finally:
        await engine.close()
    assert not engine._sockets.exists()


async def drifts_on_its_way(learner: Forgetful, sync: ChunkSync) -> None:
    """What is broadcast or lent is not what the learner had, by as much as an update moves it."""
    sender = learner.rank.sender
    with (
        patch.object(sender, "_flat", lambda chunk: Sender._flat(sender, chunk) + 1e-6),
        pytest.raises(WeightSyncMismatch, match=r"embed_tokens.weight differs,.* more$"),
    ):
        await sync.sync()


async def fails_in_an_update(engine: VllmEngine, chunk: WeightChunk, way: type[ChunkSync]) -> None:
    """What cannot be taken is an error, and so is a process that dies while it takes."""
    await engine.start_update()
    if way is IpcSync:
        with pytest.raises(EngineError, match="did not change its weights"):
            await engine.load_chunk(chunk, b"not a tensor")
        return
    waiting = asyncio.create_task(engine.load_chunk(chunk, None))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    for process in psutil.Process().children(recursive=True):
        if "EngineCore" in process.name() or "EngineCore" in " ".join(process.cmdline()):
            process.kill()
    with pytest.raises(EngineError, match="process died"):
        await asyncio.wait_for(waiting, 30.0)
    assert engine.is_dead
