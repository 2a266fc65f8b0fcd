"""YaRN in vLLM and in the learner: one policy beyond the positions that the model was made with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hillclimb.hardware.model.shipped import assets_dir
from hillclimb.spec.training.model import ModelSpec
from tests.trainer.engines.vllm.late import start_vllm
from trainer.engines.vllm.options import VllmOptions
from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.rope import resolve_rope
from trainer.learners.inline import InlineLearner
from trainer.types import SamplingParams
from trainer.weights.file_system import FileSystemSync

pytestmark = pytest.mark.filterwarnings("ignore")
MODEL = assets_dir() / "tiny-qwen3-a"
"""It has 1024 positions."""
YARN = ModelSpec.model_validate({"rope": {"factor": 2.0, "original_max_position_embeddings": 1024}})


@pytest.mark.long
async def test_a_prompt_beyond_the_models_own_positions_is_scored_and_continued_alike(
    tmp_path: Path,
) -> None:
    policy = load_policy(MODEL, YARN)
    learner = InlineLearner(policy)
    ids = torch.randint(10, 2000, (1500,), generator=torch.manual_seed(0)).tolist()
    engine = start_vllm(
        VllmOptions(
            model_dir=MODEL,
            max_length=2048,
            num_sessions=4,
            positions=resolve_rope(policy.config, YARN),
        )
    )
    try:
        scored = await engine.logprobs(ids)
        params = SamplingParams(temperature=1.0, max_new_tokens=24, stop_token_ids=(), seed=3)
        # Weights that are loaded anew leave the frequencies as they are.
        await FileSystemSync(learner, [engine], tmp_path).sync()
        synced = await engine.logprobs(ids)
        sample = await engine.sample(ids, params, session="s", prefix_key="s")
    finally:
        await engine.close()
    expected = await learner.logprobs([*ids, *sample.token_ids])
    torch.testing.assert_close(scored, expected[: len(ids) - 1], atol=1e-4, rtol=0)
    torch.testing.assert_close(synced, expected[: len(ids) - 1], atol=1e-4, rtol=0)
    drawn = expected[len(ids) - 1 :]
    torch.testing.assert_close(torch.tensor(sample.logprobs), drawn, atol=1e-4, rtol=0)
    unstretched = await InlineLearner(load_policy(MODEL)).logprobs(ids)
    assert (unstretched - scored).abs().max() > 0.01
