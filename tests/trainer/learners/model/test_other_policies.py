"""The start policy and the proximal one in the learner's own loss, with every variant of it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from tests.trainer.learners.recorded import batch
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.errors import CheckpointError
from trainer.learners.model.models import LearnerOptions, logprobs
from trainer.learners.packing.packing import pack_single
from trainer.learners.rank import LearnerRank

IDS = random_ids(40, seed=3)
GSPO = {"policy_loss_type": "gspo", "loss_reduction": "sequence_mean"}
CORRECTED = {
    "off_policy_correction": {"tis_ratio_type": "sequence", "sequence_mask_metric": "product"}
}
SPENT = ("timing/", "policy/tokens_per_second", "policy/peak_memory_gib", "policy/flops")
"""Figures of what an update cost: sequences that share a prompt in one pass compute it once."""
KL = {"use_kl_loss": True, "kl_loss_coef": 1.0}


def rank(algorithm: dict[str, Any], **learner: Any) -> LearnerRank:
    return LearnerRank(
        tiny_model(),
        LearnerOptions(
            algorithm=AlgorithmSpec.model_validate(algorithm),
            optimizer=OptimizerSpec(lr=3e-3, max_grad_norm=1e6),
            learner=LearnerSpec(**learner),
        ),
    )


def stale(by: float) -> Batch:
    """The recorded rollouts as if another policy had drawn them, each token `by` less likely."""

    def shifted(item: TrainingSequence) -> TrainingSequence:
        values = zip(item.logprobs, item.action_mask, strict=True)
        return dataclasses.replace(
            item, logprobs=tuple(value - by if acted else 0.0 for value, acted in values)
        )

    (mini_batch,) = batch().mini_batches
    return Batch(mini_batches=(tuple(map(shifted, mini_batch)),))


@pytest.mark.parametrize("learner", [{}, {"lora": LoraSpec(rank=4, alpha=8)}])
def test_the_divergence_holds_the_policy_to_its_start(learner: dict[str, Any]) -> None:
    free, held = rank(KL | {"kl_loss_coef": 1e-9}, **learner), rank(KL, **learner)
    free.step(batch())
    first = held.step(batch())
    assert first["policy/policy_kl"] == pytest.approx(0.0, abs=1e-6)
    assert first["loss/kl_loss_coef"] == 1.0
    for _ in range(7):
        drifted = free.step(batch())
        metrics = held.step(batch())
    assert metrics["loss/avg_kl"] < 0.8 * drifted["loss/avg_kl"]
    assert 0.0 < metrics["loss/avg_kl"] < metrics["loss/avg_kl_max"]
    expected = metrics["policy/policy_loss"] + metrics["policy/policy_kl"]
    assert metrics["policy/final_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("learner", [{}, {"lora": LoraSpec(rank=4, alpha=8)}])
def test_after_a_load_the_reference_is_still_the_start(
    tmp_path: Path, learner: dict[str, Any]
) -> None:
    trained = rank(KL, **learner)
    for _ in range(3):
        trained.step(batch())
    trained.save(tmp_path)
    resumed = rank(KL, **learner)
    resumed.load(tmp_path)
    micro = pack_single(IDS, device=torch.device("cpu"))
    reference = resumed._models.logprobs_of("start", micro)
    torch.testing.assert_close(reference, reference_logprobs(tiny_model(), IDS), atol=1e-5, rtol=0)
    assert (logprobs(resumed._models.policy, micro) - reference).abs().max() > 0.01
    # Metrics see the same distance as those of the run that went on.
    assert resumed.step(batch())["loss/avg_kl"] == trained.step(batch())["loss/avg_kl"]


def test_a_run_is_not_held_to_another_reference_than_before(tmp_path: Path) -> None:
    trained = rank(KL)
    trained.step(batch())
    trained.save(tmp_path)
    options = LearnerOptions(algorithm=AlgorithmSpec.model_validate(KL))
    with pytest.raises(CheckpointError, match=r"model\.source"):
        LearnerRank(tiny_model(seed=1), options).load(tmp_path)
    # Where nothing is compared with the start, all there is of it is in the checkpoint.
    free = LearnerRank(tiny_model(seed=1))
    free.load(tmp_path)
    assert torch.equal(free.logprobs(IDS), trained.logprobs(IDS))


def test_only_without_adapters_the_reference_is_a_second_model() -> None:
    assert rank({})._models.reference is None
    assert rank(KL, lora=LoraSpec())._models.reference is None
    held = rank(KL)._models
    assert held.reference is not None
    assert not any(each.requires_grad for each in held.reference.parameters())
    assert not {id(each) for each in held.reference.parameters()} & {
        id(each) for each in held.trained.values()
    }


def test_a_correction_weighs_what_another_policy_drew() -> None:
    """Every token drawn at 1/1.5 of its probability now: r = 1.5 for each."""
    plain_metrics = rank({}).step(stale(math.log(1.5)))
    assert plain_metrics["policy/ppo_clip_ratio"] > 0.2
    spec = {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.2}
    cut = rank({"off_policy_correction": spec}).step(stale(math.log(1.5)))
    assert cut["policy/ppo_clip_ratio"] == 0.0
    assert cut["policy/tis_weight_mean"] == pytest.approx(1.2)
    assert cut["policy/tis_token_clip_high_ratio"] == 1.0
    assert cut["policy/is_ratio_max"] == pytest.approx(1.5, rel=1e-4)
    on_policy = rank({}).step(batch())
    assert cut["policy/grad_norm"] == pytest.approx(1.2 * on_policy["policy/grad_norm"], rel=1e-4)
    assert cut["policy/rollout_train_logprobs_abs_diff_mean"] == pytest.approx(
        math.log(1.5), rel=1e-3
    )
    assert cut["policy/rollout_train_logprobs_abs_diff_std"] < 1e-3
    assert cut["policy/approx_kl"] == pytest.approx(0.5 - math.log(1.5), rel=1e-3)


def test_engine_and_learner_are_compared_on_what_the_same_weights_drew() -> None:
    name = "policy/rollout_train_logprobs_abs_diff"
    (current,), (older,) = batch().mini_batches, stale(1.0).mini_batches

    def drawn_by(version: int, item: TrainingSequence) -> TrainingSequence:
        return dataclasses.replace(item, weight_versions=(version,) * len(item.token_ids))

    mixed = (*(drawn_by(1, each) for each in current), *(drawn_by(0, each) for each in older))
    found = []
    for sequences in (mixed, mixed[: len(current)], mixed[len(current) :]):
        learner = rank({})
        learner.step(batch())
        found.append(learner.step(Batch(mini_batches=(sequences,))))
    for kind in ("mean", "std", "max"):
        assert found[0][f"{name}_{kind}"] == pytest.approx(found[1][f"{name}_{kind}"], rel=1e-4)
        assert f"{name}_{kind}" not in found[2]
    # All the rest is of all tokens.
    assert found[0]["policy/approx_kl"] > 2 * found[1]["policy/approx_kl"]


def test_masked_sequences_teach_nothing() -> None:
    spec = {"off_policy_correction": {"sequence_mask_metric": "geometric"}}
    learner = rank(spec)
    # With a moment of Adam and in the warm-up, a step without a gradient would be one.
    learner.step(batch())
    before, num_updates = learner.weights(), learner._num_updates
    metrics = learner.step(stale(1.0))
    assert metrics["policy/num_updates"] == 0.0
    assert learner._num_updates == num_updates
    assert metrics["policy/geo_sequence_mask_masked_ratio"] == 1.0
    assert metrics["policy/geo_sequence_mask_over_high_ratio"] == 1.0
    assert metrics["policy/geo_sequence_mask_under_low_ratio"] == 0.0
    assert metrics["policy/grad_norm"] == 0.0
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights().items())
    assert rank(spec).step(batch())["policy/geo_sequence_mask_masked_ratio"] == 0.0


def test_at_the_second_mini_batch_the_ratio_is_to_the_policy_before_the_first() -> None:
    (mini_batch,) = batch().mini_batches
    twice = Batch(mini_batches=(mini_batch, mini_batch))
    metrics = rank(CORRECTED).step(twice)
    assert 0.0 < metrics["policy/ppo_clip_ratio"] < 1.0
    # r compares with the same policy in both: nothing is masked though the policy has moved.
    assert metrics["policy/product_sequence_mask_masked_ratio"] == 0.0
    assert metrics["policy/tis_weight_mean"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    "algorithm",
    [GSPO, GSPO | CORRECTED | KL, {"policy_loss_type": "cispo"} | CORRECTED],
    ids=["gspo", "gspo-corrected-kl", "cispo-corrected"],
)
def test_neither_gradients_nor_figures_depend_on_the_cut(
    algorithm: dict[str, Any], tmp_path: Path
) -> None:
    # All cuts go on from the same weights. Adam's first step is lr x the sign of a gradient, so one
    # of each cut's own would turn the rounding of gradients next to 0 into other policies.
    first = rank(algorithm)
    first.step(batch())
    first.save(tmp_path)
    seen = []
    for max_tokens in (1, 60, 4096):
        learner = rank(algorithm, max_micro_tokens=max_tokens)
        learner.load(tmp_path)
        metrics = learner.step(stale(0.02))
        gradients = {
            name: each.grad.full_tensor()  # type: ignore[union-attr]
            for name, each in learner._models.trained.items()
        }
        seen.append((gradients, metrics))
    for gradients, metrics in seen[1:]:
        for name, gradient in seen[0][0].items():
            torch.testing.assert_close(gradients[name], gradient, atol=1e-5, rtol=1e-4)
        for name, value in seen[0][1].items():
            if not name.startswith(SPENT):
                assert metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("algorithm", [GSPO, {"policy_loss_type": "cispo"}, CORRECTED, KL])
def test_every_variant_raises_what_was_rewarded_and_lowers_what_was_punished(
    algorithm: dict[str, Any],
) -> None:
    first, second = batch().mini_batches[0][4:6]
    good, bad = dataclasses.replace(first, advantage=1.0), dataclasses.replace(second, advantage=-1)
    learner = rank(algorithm)

    def total(item: TrainingSequence) -> float:
        scored = learner.logprobs(item.token_ids)
        return float(scored[torch.tensor(item.action_mask[1:])].sum())

    before = total(good), total(bad)
    learner.step(Batch(mini_batches=((good, bad),)))
    assert total(good) > before[0]
    assert total(bad) < before[1]
