"""Real vLLM on Qwen3.5: the text model of a whole checkpoint, its log-probs, and whole syncs.

A CPU build computes linear attention in bfloat16 alone, and rounding says little of random weights:
the exact comparison over several turns is the torch engine's.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
)

from hillclimb.hardware.model.shipped import assets_dir
from tests.trainer.engines.vllm.late import NEEDS_VLLM, start_vllm
from tests.trainer.engines.vllm.test_vllm import Pair
from tests.trainer.fixtures.families import OWN, SIZES, VOCAB
from tests.trainer.inputs.model.families.test_qwen3_5 import VISION
from tests.trainer.weights.tampered import Tampered, without
from trainer.engines.canary import BFLOAT16_TOLERANCE, canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import WeightSyncMismatch
from trainer.inputs.model.directory import copy_tokenizer, load_policy
from trainer.inputs.model.families.registry import family_of
from trainer.learners.inline import InlineLearner

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    NEEDS_VLLM,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),
]
CLASSES: dict[str, Any] = {
    "qwen3_5_text": (Qwen3_5Config, Qwen3_5ForConditionalGeneration),
    "qwen3_5_moe_text": (Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration),
}
MEAN = {"qwen3_5_text": 0.05, "qwen3_5_moe_text": 0.2}
"""Allowed mean difference of a turn's log-probs."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CLASSES)
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    root = tmp_path_factory.mktemp(request.param)
    make_config, make = CLASSES[request.param]
    # Small weights: where log-probs are close to uniform, rounding moves them little.
    text = SIZES | OWN[request.param] | {"initializer_range": 0.08}
    config = make_config(text_config=text, vision_config=VISION, tie_word_embeddings=True)
    torch.manual_seed(0)
    whole = make(config)
    whole.save_pretrained(root / "whole")
    weights = load_file(root / "whole" / "model.safetensors")
    weights["mtp.fc.weight"] = torch.ones(64, 128)
    save_file(weights, root / "whole" / "model.safetensors", metadata={"format": "pt"})
    copy_tokenizer(assets_dir() / "tiny-qwen3-a", root / "whole")
    policy = load_policy(root / "whole")
    family = family_of(policy.config)
    options = VllmOptions(
        model_dir=root / "whole",
        max_length=512,
        num_sessions=8,
        architecture=family.architecture,
        has_linear_attention=True,
        is_text_half=True,
        dtype="bfloat16",
        positions={"rope_parameters": policy.config.to_dict()["rope_parameters"]},
    )
    engine = start_vllm(options)
    yield Pair(engine=engine, learner=InlineLearner(policy), shared=root / "w")
    await engine.close()


def kind(pair: Pair) -> str:
    return str(pair.learner.rank._models.config.model_type)


async def gaps(pair: Pair) -> list[float]:
    """Mean difference of engine and learner over each of three turns."""
    drawn = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCAB, (150,), generator=drawn).tolist()
    found = []
    for turn in range(3):
        sample = await pair.sample(ids, seed=turn, stop_token_ids=())
        scored = await pair.learner.logprobs([*ids, *sample.token_ids])
        difference = torch.tensor(sample.logprobs) - scored[len(ids) - 1 :]
        found.append(float(difference.abs().mean()))
        ids = [*ids, *sample.token_ids, *torch.randint(0, VOCAB, (20,), generator=drawn).tolist()]
    return found


async def test_logprobs_over_several_turns_are_the_learners_but_for_rounding(pair: Pair) -> None:
    found = await gaps(pair)
    assert max(found) < MEAN[kind(pair)], found


async def test_a_changed_policy_arrives_whole_and_one_with_a_hole_is_caught(
    pair: Pair,
) -> None:
    for parameter in pair.learner.rank._models.parameters.values():
        noise = torch.randn(parameter.shape, generator=torch.manual_seed(1))
        with torch.no_grad():
            parameter.to_local().add_(0.08 * noise)  # type: ignore[attr-defined]
    pair.learner.rank.version += 1
    before = await gaps(pair)
    assert min(before) > 3 * MEAN[kind(pair)], before
    await pair.sync()
    found = await gaps(pair)
    assert max(found) < 2 * MEAN[kind(pair)], found
    tokens = canary_tokens(VOCAB)
    await canary_gap(pair.engine, pair.learner, tokens, tolerance=BFLOAT16_TOLERANCE)  # type: ignore[arg-type]
    for left_out in ("A_log", "in_proj_z.weight", "conv1d.weight"):
        pair.learner.rank.version += 1
        name = f"model.layers.1.linear_attn.{left_out}"
        with pytest.raises(WeightSyncMismatch, match=re.escape(name)):
            await pair.sync(Tampered(pair.learner, without(name)))
