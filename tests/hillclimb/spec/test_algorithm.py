"""Settings of the loss that would have no effect, or mean nothing together, are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.fixtures.factories import make_spec

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"policy_loss_type": "gspo"}, "set loss_reduction to sequence_mean"),
    (
        {"policy_loss_type": "gspo", "loss_reduction": "sequence_mean"},
        "eps_clip_low 0.2 would never clip it: set it to 0.02 or less",
    ),
    (
        {
            "policy_loss_type": "gspo",
            "loss_reduction": "sequence_mean",
            "eps_clip_low": 3e-4,
            "eps_clip_high": 0.021,
        },
        "eps_clip_high 0.021 would never clip it",
    ),
    ({"clip_ratio_c": 2.0}, 'read only where policy_loss_type is "dual_clip"'),
    ({"cispo": {"cispo_eps_clip_high": 2.0}}, 'read only where policy_loss_type is "cispo"'),
    ({"policy_loss_type": "cispo", "eps_clip_low": 0.1}, "set cispo.cispo_eps_clip_low instead"),
    ({"policy_loss_type": "cispo", "eps_clip_high": 2}, "set cispo.cispo_eps_clip_high instead"),
    ({"kl_loss_coef": 0.1}, "kl_loss_coef is set, but it is read only where use_kl_loss is true"),
    ({"kl_estimator_type": "k1"}, "or leave kl_estimator_type out"),
    ({"dynamic_sampling": {"type": "filter", "max_sample_batches": 1}}, "greater than or equal"),
    (
        {"dynamic_sampling": {"type": "filter", "min_replace_ratio": 0.5}},
        'read only where type is "replace"',
    ),
    (
        {"dynamic_sampling": {"type": "filter", "max_sample_batches": 1000}},
        "or algorithm.dynamic_sampling.max_sample_batches",
    ),
    (
        {"off_policy_correction": {"token_tis_ratio_clip_high": 3.0}},
        'read only where tis_ratio_type is "token"',
    ),
    (
        {"off_policy_correction": {"tis_ratio_type": "token", "sequence_tis_ratio_clip_high": 3}},
        'read only where tis_ratio_type is "sequence"',
    ),
    (
        {"off_policy_correction": {"product_mask_low": 0.1}},
        'read only where sequence_mask_metric is "product"',
    ),
    (
        {"off_policy_correction": {"sequence_mask_metric": "product", "geo_mask_high": 2.0}},
        'read only where sequence_mask_metric is "geometric"',
    ),
    (
        {"off_policy_correction": {"sequence_mask_metric": "product", "product_mask_low": 2.0}},
        "lower the first or raise the second",
    ),
]


@pytest.mark.parametrize(("section", "sentence"), REFUSED)
def test_a_setting_without_effect_is_refused(section: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        make_spec(algorithm=section)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "section",
    [
        {
            "policy_loss_type": "gspo",
            "loss_reduction": "sequence_mean",
            "eps_clip_low": 0.02,
            "eps_clip_high": 4e-4,
        },
        {"policy_loss_type": "dual_clip", "clip_ratio_c": 2.0},
        {"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_high": 4.0}},
        {"dynamic_sampling": {"type": "replace", "min_replace_ratio": 0.5}},
        {"use_kl_loss": True, "kl_loss_coef": 0.01, "kl_estimator_type": "k2"},
        {"off_policy_correction": {"tis_ratio_type": "token", "sequence_mask_metric": "geometric"}},
    ],
)
def test_a_spec_that_uses_what_it_sets_survives_its_json(section: dict[str, Any]) -> None:
    spec = make_spec(algorithm=section)
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


def test_nothing_is_corrected_by_default() -> None:
    assert not AlgorithmSpec().off_policy_correction.is_on


def test_a_floor_of_a_rate_that_never_falls_is_refused() -> None:
    with pytest.raises(ValidationError, match='where lr_scheduler is "linear" or "cosine"'):
        OptimizerSpec(min_lr_ratio=0.5)
    for scheduler in ("linear", "cosine"):
        OptimizerSpec.model_validate({"lr_scheduler": scheduler, "min_lr_ratio": 0.5})
