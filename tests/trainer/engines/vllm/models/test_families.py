"""Real vLLM on the families beside Qwen3: its log-probs are the learner's, and syncs are whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file, save_file

from hillclimb.hardware.model.shipped import assets_dir
from hillclimb.protocol.rundir import POLICY
from tests.trainer.engines.vllm.late import NEEDS_VLLM, start_vllm
from tests.trainer.engines.vllm.test_vllm import Pair
from tests.trainer.fixtures.families import TYPES, VOCAB, family_model
from tests.trainer.weights.tampered import Tampered, one_bit_off, without
from trainer.engines.canary import canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import WeightSyncMismatch
from trainer.inputs.model.families.registry import FAMILIES
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    NEEDS_VLLM,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),
]
HYBRIDS = ("qwen3_5_text", "qwen3_5_moe_text")
"""In bfloat16 alone on a CPU: `test_hybrids.py`."""
OTHERS = [each for each in TYPES if each not in ("qwen3", *HYBRIDS)]
LEFT_OUT = {
    "qwen2": "model.layers.1.self_attn.k_proj.bias",
    "llama": "lm_head.weight",
    "qwen3_moe": "model.layers.2.mlp.experts.down_proj",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=OTHERS)
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    root = tmp_path_factory.mktemp(request.param)
    model = family_model(request.param)
    positions = {name: model.config.to_dict()[name] for name in ("rope_parameters",)}
    # Some classes of tokenizers do not start without files; nothing here reads text.
    learner = InlineLearner(model, LearnerOptions(tokenizer_dir=assets_dir() / "tiny-qwen3-a"))
    learner.save(root)
    family = next(each for each in FAMILIES if each.model_type == request.param)
    options = VllmOptions(
        model_dir=root / POLICY,
        max_length=512,
        num_sessions=8,
        architecture=family.architecture,
        positions=positions,
    )
    engine = start_vllm(options)
    yield Pair(engine=engine, learner=learner, shared=root / "w")
    await engine.close()


async def play(pair: Pair, seed: int) -> None:
    """Draw three turns with observations between, and compare each with the learner's scores."""
    drawn = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (150,), generator=drawn).tolist()
    for turn in range(3):
        sample = await pair.sample(ids, seed=turn, stop_token_ids=())
        scored = await pair.learner.logprobs([*ids, *sample.token_ids])
        torch.testing.assert_close(
            torch.tensor(sample.logprobs), scored[len(ids) - 1 :], atol=1e-4, rtol=0
        )
        ids = [*ids, *sample.token_ids, *torch.randint(0, VOCAB, (20,), generator=drawn).tolist()]


async def test_logprobs_over_several_turns_are_the_learners(pair: Pair) -> None:
    await play(pair, seed=1)


async def test_a_changed_policy_arrives_whole_and_one_with_a_hole_is_caught(
    pair: Pair, tmp_path: Path
) -> None:
    pair.change(1)
    pair.learner.rank.version += 1
    tokens = canary_tokens(VOCAB)
    with pytest.raises(WeightSyncMismatch):
        await canary_gap(pair.engine, pair.learner, tokens)  # type: ignore[arg-type]
    await pair.sync()
    assert await canary_gap(pair.engine, pair.learner, tokens) < 1e-4  # type: ignore[arg-type]
    await play(pair, seed=2)
    left_out = LEFT_OUT[type(pair.learner.rank._models.config).model_type]
    for said, change_file in {
        f"{left_out} differs": one_bit_off(left_out),
        f"{left_out} did not arrive": without(left_out),
    }.items():
        pair.learner.rank.version += 1
        with pytest.raises(WeightSyncMismatch, match=said):
            await pair.sync(Tampered(pair.learner, change_file))
    pair.change(2)
    pair.learner.rank.version += 1
    path = tmp_path / "torn.safetensors"
    version = (await pair.learner.write_weights(path)).version
    weights = load_file(path)
    del weights[left_out]
    save_file(weights, path)
    await pair.engine.load_weights_file(path, version)  # type: ignore[attr-defined]
    with pytest.raises(WeightSyncMismatch):
        await canary_gap(pair.engine, pair.learner, tokens)  # type: ignore[arg-type]
