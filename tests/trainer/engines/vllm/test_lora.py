"""Adapters instead of whole weights: what vLLM serves is what the learner has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, patch

import pytest
import torch

from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from tests.trainer.engines.vllm.late import start_vllm
from tests.trainer.weights.tampered import Tampered, drifted, one_bit_off, without
from trainer.engines.canary import canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import WeightSyncMismatch
from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.sources import resolve_source
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.types import SamplingParams
from trainer.weights.file_system import AdapterOf, FileSystemSync

if TYPE_CHECKING:
    from trainer.engines.vllm.engine import VllmEngine

TOKENS = canary_tokens(2048)


def change(learner: InlineLearner, seed: int) -> None:
    """Move every factor of the adapter, and count it as a step."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.rank._models.trained.values():
            local = parameter.to_local()
            local.add_(0.05 * torch.randn(local.shape, generator=generator))
    learner.rank.version += 1


async def rounding(learner: InlineLearner) -> float:
    """Mean difference that float32 explains: each side was within 6 units in the last place of the
    log-probs (around -13 here) of a float64 forward pass, so both together get 16."""
    size = float((await learner.logprobs(TOKENS)).abs().mean())
    return 16 * torch.finfo(torch.float32).eps * size


async def other_bits_are_found(learner: InlineLearner, engine: VllmEngine, directory: Path) -> None:
    """In the file, and in what vLLM has made of it."""
    layer = "base_model.model.model.layers.1.self_attn.k_proj"
    first, second = f"{layer}.lora_A.weight", f"{layer}.lora_B.weight"
    for tamper, said in (
        (one_bit_off(second), f": {second} differs$"),
        (without(first, second), f": {first} did not arrive, {second} did not arrive$"),
        (drifted(), "differs,.* more$"),
    ):
        with pytest.raises(WeightSyncMismatch, match=said):
            await FileSystemSync(Tampered(AdapterOf(learner), tamper), [engine], directory).sync()
    await FileSystemSync(AdapterOf(learner), [engine], directory).sync()
    change(learner, 7)
    with (
        patch.object(engine, "_load_adapter", AsyncMock()),
        pytest.raises(WeightSyncMismatch, match=r"did not arrive,.* more$"),
    ):
        await FileSystemSync(AdapterOf(learner), [engine], directory).sync()


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="vLLM's kernels for adapters on a GPU take no float32"
)
@pytest.mark.invariant("vLLM serves the adapter that it was sent last")
async def test_an_adapter_is_served_replaced_and_missed_when_it_is_not_sent(tmp_path: Path) -> None:
    model_dir = resolve_source("builtin:tiny-qwen3-a", tmp_path)
    lora = LoraSpec(rank=5)
    learner = InlineLearner(
        load_policy(model_dir), LearnerOptions(learner=LearnerSpec(lora=lora), seed=1)
    )
    options = VllmOptions(model_dir=model_dir, max_length=256, num_sessions=8, lora_rank=lora.rank)
    engine = start_vllm(options)
    sync = FileSystemSync(AdapterOf(learner), [engine], tmp_path / "weights", keep_newest=True)
    try:
        for seed in range(3):
            await sync.sync()
            assert await canary_gap(engine, learner, TOKENS) < await rounding(learner)
            assert engine.weight_version == seed
            change(learner, seed)
            with pytest.raises(WeightSyncMismatch):
                await canary_gap(engine, learner, TOKENS)
        await sync.sync()
        assert [path.name for path in (tmp_path / "weights").iterdir()] == ["version-3"]
        await other_bits_are_found(learner, engine, tmp_path / "tampered")
        await sync.sync()
        drawn = await engine.sample(
            TOKENS,
            SamplingParams(temperature=1.0, max_new_tokens=20, seed=1),
            session="s",
            prefix_key="g",
        )
        scored = await learner.logprobs([*TOKENS, *drawn.token_ids])
        torch.testing.assert_close(
            torch.tensor(drawn.logprobs), scored[len(TOKENS) - 1 :], atol=1e-4, rtol=0
        )
        assert set(drawn.weight_versions) == {4}
    finally:
        await engine.close()
