"""vLLM in bfloat16, on whatever this machine has: it draws, takes weights and passes the canary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hillclimb.hardware.model.shipped import assets_dir
from tests.trainer.engines.vllm.late import start_vllm
from trainer.engines.canary import canary_gap, canary_tokens, canary_tolerance
from trainer.engines.vllm.options import VllmOptions
from trainer.inputs.model.directory import load_policy
from trainer.learners.inline import InlineLearner
from trainer.types import SamplingParams
from trainer.weights.file_system import FileSystemSync

# vLLM and its own dependencies warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")
MODEL = assets_dir() / "tiny-qwen3-a"


@pytest.mark.long
async def test_in_bfloat16_it_samples_takes_weights_and_is_within_the_rounding(
    tmp_path: Path,
) -> None:
    engine = start_vllm(
        VllmOptions(model_dir=MODEL, max_length=256, num_sessions=4, dtype="bfloat16")
    )
    try:
        workarounds = {"enforce_eager", "enable_chunked_prefill"} & engine.arguments.keys()
        assert bool(workarounds) is not torch.cuda.is_available(), "they are for the CPU build"
        learner = InlineLearner(load_policy(MODEL))
        await FileSystemSync(learner, [engine], tmp_path / "weights").sync()
        ids = canary_tokens(load_policy(MODEL).config.vocab_size)
        gap = await canary_gap(
            engine, learner, ids, tolerance=canary_tolerance("float32", "bfloat16")
        )
        assert gap > 1e-5, "these would be float32's log-probs"
        params = SamplingParams(temperature=1.0, max_new_tokens=8, seed=1)
        drawn = await engine.sample(ids, params, session="s", prefix_key="s")
        assert len(drawn.token_ids) == 8
    finally:
        await engine.close()
