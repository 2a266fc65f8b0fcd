"""Weights from the learner's process straight into vLLM's, both ways."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import psutil
import pytest

from tests.trainer.engines.late import start_vllm
from tests.trainer.engines.test_vllm import change
from trainer.engines.canary import canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import EngineError, WeightSyncMismatch
from trainer.learners import sending
from trainer.learners.inline import InlineLearner
from trainer.learners.sending import Sender
from trainer.models import load_policy
from trainer.sources import resolve_source
from trainer.weights.pieces import CollectiveSync, LentSync, Piece, Pieces, PieceSync, in_pieces

if TYPE_CHECKING:
    from trainer.engines.vllm.engine import VllmEngine

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = canary_tokens(2048)


class Forgetful(InlineLearner):
    """Leaves one tensor out, once `forgets`."""

    forgets = ""

    async def pieces(self) -> Pieces:
        whole = await super().pieces()
        kept = (self._without(piece) for piece in whole.pieces)
        return Pieces(whole.version, tuple(piece for piece in kept if piece))

    def _without(self, piece: Piece) -> Piece:
        return tuple(tensor for tensor in piece if tensor.name != self.forgets)


@pytest.mark.parametrize("way", [CollectiveSync, LentSync])
async def test_changed_weights_arrive_piece_by_piece_and_a_missing_tensor_is_noticed(
    way: type[PieceSync], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "in_pieces", partial(in_pieces, limit=1_000_000))
    model_dir = resolve_source("builtin:tiny-qwen3-a", tmp_path)
    learner = Forgetful(load_policy(model_dir))
    num_pieces = len((await learner.pieces()).pieces)
    assert num_pieces > 3
    engine = start_vllm(
        VllmOptions(model_dir=model_dir, max_length=256, num_sessions=8, by_pieces=True)
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
        await fails_in_an_update(engine, (await learner.pieces()).pieces[0], way)
    finally:
        await engine.close()
    assert not engine._sockets.exists()


async def drifts_on_its_way(learner: Forgetful, sync: PieceSync) -> None:
    """What is broadcast or lent is not what the learner had, by as much as an update moves it."""
    sender = learner.rank.sender
    with (
        patch.object(sender, "_flat", lambda piece: Sender._flat(sender, piece) + 1e-6),
        pytest.raises(WeightSyncMismatch, match=r"embed_tokens.weight is another,.* more$"),
    ):
        await sync.sync()


async def fails_in_an_update(engine: VllmEngine, piece: Piece, way: type[PieceSync]) -> None:
    """What cannot be taken is an error, and so is a process that dies while it takes."""
    await engine.begin_update()
    if way is LentSync:
        with pytest.raises(EngineError, match="did not take the weights"):
            await engine.take_piece(piece, b"not a tensor")
        return
    waiting = asyncio.create_task(engine.take_piece(piece, None))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    for process in psutil.Process().children(recursive=True):
        if "EngineCore" in process.name() or "EngineCore" in " ".join(process.cmdline()):
            process.kill()
    with pytest.raises(EngineError, match="process died"):
        await asyncio.wait_for(waiting, 30.0)
    assert engine.is_dead
