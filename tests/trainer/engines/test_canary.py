"""A weight that was not transferred is found, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from hillclimb.hardware.model.shapes import shape_of_config
from hillclimb.hardware.model.shipped import assets_dir
from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.families import VOCAB as FAMILY_VOCAB
from tests.trainer.fixtures.families import family_model
from tests.trainer.fixtures.tiny import VOCAB, tiny_config, tiny_model
from trainer.engines.canary import (
    NUM_CANARY_TOKENS,
    TEXT,
    Canary,
    canary_gap,
    canary_tokens,
    canary_tolerance,
    num_canary_tokens,
    text_tokens,
)
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.errors import NonFiniteUpdate, WeightSyncMismatch
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.rollouts.chat.tokenizer import load_tokenizer


def synced(left_out: str | None) -> tuple[TorchEngine, dict[str, torch.Tensor], InlineLearner]:
    old, learner = tiny_model(seed=0), InlineLearner(tiny_model(seed=1))
    weights = dict(learner.publish().weights)
    if left_out:
        del weights[left_out]
    return TorchEngine(old.config, old.state_dict()), weights, learner


async def test_a_complete_sync_passes() -> None:
    engine, weights, learner = synced(None)
    await engine.update(weights, 1)
    assert await canary_gap(engine, learner, canary_tokens(VOCAB)) < 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.norm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.1.mlp.down_proj.weight",
    ],
)
async def test_a_left_out_weight_is_a_mismatch(name: str) -> None:
    engine, weights, learner = synced(name)
    await engine.update(weights, 1)
    with pytest.raises(WeightSyncMismatch, match="not transferred"):
        await canary_gap(engine, learner, canary_tokens(VOCAB))


async def test_not_a_number_is_a_mismatch() -> None:
    engine, weights, learner = synced(None)
    await engine.update(weights | {"model.norm.weight": torch.full((32,), torch.nan)}, 1)
    with pytest.raises(WeightSyncMismatch):
        await canary_gap(engine, learner, canary_tokens(VOCAB))


async def test_a_side_in_bfloat16_is_allowed_its_rounding_and_no_more() -> None:
    options = LearnerOptions(learner=LearnerSpec(policy_dtype="bfloat16"))
    learner = InlineLearner(tiny_model(seed=1), options)
    weights = learner.publish().weights
    engine = TorchEngine(tiny_config(), weights)
    tokens, allowed = canary_tokens(VOCAB), canary_tolerance("float32", "bfloat16")
    assert await canary_gap(engine, learner, tokens, tolerance=allowed) > canary_tolerance()
    left_out = {name: each for name, each in weights.items() if name != "lm_head.weight"}
    engine = TorchEngine(tiny_config(), tiny_model().state_dict())
    await engine.update(left_out, 1)
    with pytest.raises(WeightSyncMismatch):
        await canary_gap(engine, learner, tokens, tolerance=allowed)


async def test_a_policy_that_gives_no_numbers_is_not_blamed_on_the_sync() -> None:
    broken = tiny_model(seed=1)
    with torch.no_grad():
        broken.model.norm.weight.fill_(torch.inf)
    learner = InlineLearner(broken)
    published = learner.publish()
    engine = TorchEngine(broken.config, published.weights)
    with pytest.raises(NonFiniteUpdate, match="NaN or infinite"):
        await canary_gap(engine, learner, canary_tokens(VOCAB))


def test_canary_tokens_fit_every_vocabulary() -> None:
    for size in (2, 64, 2048, 151_936):
        tokens = canary_tokens(size)
        assert len(tokens) == NUM_CANARY_TOKENS
        assert all(0 <= token < size for token in tokens)


class Fixed:
    """A side that scored the tokens before."""

    def __init__(self, scored: torch.Tensor) -> None:
        self._scored = scored

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        assert len(token_ids) == len(self._scored) + 1
        return self._scored


async def test_with_experts_the_canary_scores_enough_tokens_for_nearly_all_of_them() -> None:
    """Random routers are uneven: an expert without a token is left to the comparison of bits."""
    model = family_model("qwen3_moe", num_experts=32, num_experts_per_tok=1)
    experts = shape_of_config(model.config.to_dict()).experts
    many = canary_tokens(FAMILY_VOCAB, num_canary_tokens(experts, max_length=400))
    few = canary_tokens(FAMILY_VOCAB, num_canary_tokens(None, max_length=400))
    assert (len(many), len(few)) == (400, 32)
    options = TorchEngineOptions(num_sessions=1, max_length=512)
    engine = TorchEngine(model.config, model.state_dict(), options=options)
    learner = {len(each): Fixed(await engine.logprobs(each)) for each in (many, few)}
    name = "model.layers.2.mlp.experts.down_proj"
    weights, unnoticed = model.state_dict()[name], {400: 0, 32: 0}
    for expert in range(32):
        old = weights.clone()
        old[expert] += 0.2 * torch.randn(old[expert].shape, generator=torch.manual_seed(expert))
        await engine.update({name: old}, 1)
        for tokens in (many, few):
            try:
                await canary_gap(engine, learner[len(tokens)], tokens)
                unnoticed[len(tokens)] += 1
            except WeightSyncMismatch:
                pass
    assert unnoticed[32] > 8 * unnoticed[400]
    assert unnoticed[400] <= 2


def test_the_text_is_scored_where_the_model_has_its_tokens() -> None:
    ids = load_tokenizer(assets_dir() / "tiny-qwen3-a").encode(TEXT, add_special_tokens=False).ids
    tokens = text_tokens(ids, 2048)
    assert tokens == tuple(ids[: len(tokens)])
    assert len(set(tokens)) > NUM_CANARY_TOKENS / 2, "one word alone would see little"
    assert text_tokens(ids, 64) == canary_tokens(64)
    assert text_tokens([], 2048) == canary_tokens(2048)


class Off:
    """Scores that are off by so much."""

    def __init__(self, gap: float) -> None:
        self.gap = gap

    async def logprobs(self, token_ids: object) -> torch.Tensor:
        return torch.full((NUM_CANARY_TOKENS - 1,), self.gap)


@pytest.mark.parametrize(
    ("dtype", "first", "allowed"),
    [
        ("bfloat16", 0.01, 0.1),
        ("bfloat16", 0.04, 0.2),
        ("bfloat16", 0.2, 0.3),
        ("float32", 1e-6, 1e-4),
        ("float32", 9e-5, 1e-4),
    ],
)
async def test_what_may_differ_follows_from_the_first_sync(
    dtype: str, first: float, allowed: float
) -> None:
    canary = Canary(canary_tokens(64), tolerance=canary_tolerance("float32", dtype))
    await canary.score(Off(0.0))
    assert await canary.gap([Off(0.0), Off(first)]) == pytest.approx(first)
    assert await canary.gap([Off(0.99 * allowed)]) == pytest.approx(0.99 * allowed)
    with pytest.raises(WeightSyncMismatch):
        await canary.gap([Off(0.0), Off(1.01 * allowed)])


async def test_the_first_sync_has_a_limit_too() -> None:
    canary = Canary(canary_tokens(64), tolerance=canary_tolerance("bfloat16"))
    await canary.score(Off(0.0))
    with pytest.raises(WeightSyncMismatch):
        await canary.gap([Off(0.31)])
