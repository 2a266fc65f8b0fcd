"""Every setting of the loss against a slow float64 reference, whole and cut into micro-batches."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.algo.loss.slow import ROLLOUTS, Rollout, slow_loss, tensors, weights
from trainer.algo.loss.loss import policy_loss
from trainer.algo.loss.stats import LossStats

KINDS: list[dict[str, Any]] = [
    {},
    {"policy_loss_type": "dual_clip", "clip_ratio_c": 1.5},
    {"policy_loss_type": "gspo", "loss_reduction": "sequence_mean"},
    {"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_low": 0.4, "cispo_eps_clip_high": 0.7}},
]
REDUCTIONS = ["token_mean", "sequence_mean", "seq_mean_token_sum_norm"]
CORRECTIONS: list[dict[str, Any]] = [
    {},
    {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.4},
    {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 1.7},
    {"sequence_mask_metric": "product", "product_mask_low": 0.2, "product_mask_high": 3.0},
    {
        "tis_ratio_type": "token",
        "sequence_mask_metric": "geometric",
        "geo_mask_low": 0.5,
        "geo_mask_high": 1.6,
    },
]
DIVERGENCES: list[dict[str, Any]] = [{}] + [
    {"use_kl_loss": True, "kl_loss_coef": 0.3, "kl_estimator_type": kind}
    for kind in ("k1", "k2", "k3")
]


def algorithms() -> list[AlgorithmSpec]:
    """Every variant with every reduction, correction and divergence that it allows."""
    made = []
    for kind, reduction, correction, divergence in itertools.product(
        KINDS, REDUCTIONS, CORRECTIONS, DIVERGENCES
    ):
        if kind.get("policy_loss_type") == "gspo" and reduction != "sequence_mean":
            continue
        document = {"loss_reduction": reduction} | kind | divergence
        made.append(AlgorithmSpec.model_validate(document | {"off_policy_correction": correction}))
    return made


ALGORITHMS = st.sampled_from(algorithms())


def learned(
    rollouts: list[Rollout], algorithm: AlgorithmSpec, cuts: set[int]
) -> tuple[float, list[float], LossStats]:
    """Loss, gradient and figures of a mini-batch cut into micro-batches after `cuts`."""
    shares = weights(rollouts, algorithm)
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(rollouts)), len(rollouts)]
    total, gradient, stats = 0.0, [], LossStats()
    for start, end in itertools.pairwise(bounds):
        logprobs, actions = tensors(rollouts[start:end], shares[start:end], algorithm)
        loss, part = policy_loss(logprobs, actions, algorithm)
        torch.autograd.backward(loss)
        assert logprobs.grad is not None
        total += loss.item()
        gradient += logprobs.grad.tolist()
        stats += part
    return total, gradient, stats


@settings(deadline=None, max_examples=300)
@given(ROLLOUTS, ALGORITHMS)
def test_loss_and_gradient_equal_the_slow_reference(
    rollouts: list[Rollout], algorithm: AlgorithmSpec
) -> None:
    expected, rows = slow_loss(rollouts, algorithm)
    loss, gradient, stats = learned(rollouts, algorithm, set())
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert gradient == pytest.approx([v for row in rows for v in row], rel=1e-9, abs=1e-12)
    assert stats.loss == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=150)
@given(ROLLOUTS, ALGORITHMS, st.sets(st.integers(1, 5)))
def test_micro_batches_never_change_loss_gradient_or_figures(
    rollouts: list[Rollout], algorithm: AlgorithmSpec, cuts: set[int]
) -> None:
    whole_loss, whole_gradient, whole = learned(rollouts, algorithm, set())
    loss, gradient, parts = learned(rollouts, algorithm, cuts)
    assert loss == pytest.approx(whole_loss, rel=1e-9, abs=1e-12)
    assert gradient == pytest.approx(whole_gradient, rel=1e-12)
    assert dataclasses.asdict(parts) == pytest.approx(dataclasses.asdict(whole), rel=1e-9)


PROXIMAL = {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 50.0}
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"eps_clip_low": 0.05}),
    ({}, {"eps_clip_high": 0.05}),
    ({}, KINDS[1]),
    ({"loss_reduction": "sequence_mean"}, KINDS[2]),
    ({}, KINDS[3]),
    (KINDS[3], {"cispo": {"cispo_eps_clip_low": 0.1, "cispo_eps_clip_high": 0.7}}),
    (KINDS[3], {"cispo": {"cispo_eps_clip_low": 0.4, "cispo_eps_clip_high": 0.1}}),
    (KINDS[1], {"clip_ratio_c": 2.0}),
    ({}, {"loss_reduction": "sequence_mean"}),
    ({}, {"loss_reduction": "seq_mean_token_sum_norm"}),
    ({}, DIVERGENCES[1]),
    (DIVERGENCES[1], DIVERGENCES[2]),
    (DIVERGENCES[1], DIVERGENCES[3]),
    (DIVERGENCES[3], {"kl_loss_coef": 0.1}),
    ({}, {"off_policy_correction": PROXIMAL}),
    ({"off_policy_correction": PROXIMAL}, {"off_policy_correction": CORRECTIONS[1]}),
    ({"off_policy_correction": PROXIMAL}, {"off_policy_correction": CORRECTIONS[2]}),
    (
        {"off_policy_correction": CORRECTIONS[2]},
        {"off_policy_correction": {"tis_ratio_type": "sequence"}},
    ),
    *[
        (
            {"off_policy_correction": {"sequence_mask_metric": metric} | loose},
            {"off_policy_correction": {"sequence_mask_metric": metric} | loose | {key: bound}},
        )
        for metric, loose, key, bound in [
            ("product", {"product_mask_low": 1e-3, "product_mask_high": 99.0}, key, bound)
            for key, bound in (("product_mask_low", 0.9), ("product_mask_high", 1.1))
        ]
        + [
            ("geometric", {"geo_mask_low": 1e-3, "geo_mask_high": 99.0}, key, bound)
            for key, bound in (("geo_mask_low", 0.9), ("geo_mask_high", 1.1))
        ]
    ],
]


@pytest.mark.parametrize(("base", "change"), SETTINGS)
def test_every_setting_of_the_loss_has_an_effect(
    base: dict[str, Any], change: dict[str, Any]
) -> None:
    rollouts = [
        Rollout(now=(-1.0, -0.2), behaviour=(-1.5, -2.0), proximal=(-1.1, -1.0),
                reference=(-2.0, -0.4), advantage=-1.0),
        Rollout(now=(-0.1,), behaviour=(-0.9,), proximal=(-1.9,), reference=(-0.7,), advantage=1.0),
        Rollout(now=(-0.9, -2.0, -1.0), behaviour=(-0.2, -1.9, -1.1), proximal=(-0.2, -1.9, -1.1),
                reference=(-0.2, -2.2, -1.1), advantage=-0.7),
    ]  # fmt: skip
    before, after = (
        learned(rollouts, AlgorithmSpec.model_validate(document), set())[:2]
        for document in (base, base | change)
    )
    assert before != after
