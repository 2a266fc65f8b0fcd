"""From the same adapter and the same rollouts, a server takes the step that our learner takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tinker import types

from tests.trainer.learners.recorded import batch, recorded_batches
from tests.trainer.tinker.local import RANK, make_learner
from tests.trainer.tiny import random_ids, tiny_model
from trainer.algo.sequences import Batch
from trainer.contract.algorithm import AlgorithmSpec
from trainer.contract.sections import LearnerSpec, OptimizerSpec
from trainer.learners.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.timing import SCORING
from trainer.tinker.datum import data_of, loss_of
from trainer.tinker.learner import TinkerLearner
from trainer.tinker.service import TinkerService
from trainer.tinker_server.base import ALPHA

ADAPTER = "adapter/adapter_model.safetensors"
OPTIMIZER = OptimizerSpec(lr=1e-2, max_grad_norm=None, weight_decay=0.01)
MEASURED = {"policy/tokens_per_second", f"timing/{SCORING}"}
"""Depends on how busy the machine is."""
VARIANTS = [
    {},
    {"loss_reduction": "sequence_mean"},
    {"loss_reduction": "seq_mean_token_sum_norm"},
    {"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_high": 0.5}},
    {"eps_clip_low": 0.01, "eps_clip_high": 0.02},
]
BATCHES: list[Batch] = [
    Batch(
        mini_batches=tuple(
            tuple(each for each in part if each.temperature == 1.0) for part in each.mini_batches
        )
    )
    for each in recorded_batches(12)
]
STEPS = [each for each in BATCHES if all(each.mini_batches)][:5]


def our_learner(algorithm: AlgorithmSpec) -> LearnerRank:
    """The same adapter as the server's: same rank, scale, layers and seed."""
    learner = LearnerSpec.model_validate({"lora": {"rank": RANK, "alpha": ALPHA}})
    options = LearnerOptions(
        algorithm=algorithm,
        optimizer=OPTIMIZER,
        learner=learner,
        total_steps=10,
        max_sequence_length=200,
        seed=5,
    )
    return LearnerRank(tiny_model(), options)


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
async def test_five_steps_end_at_the_same_adapter(
    service: TinkerService, tmp_path: Path, variant: dict[str, object]
) -> None:
    algorithm = AlgorithmSpec.model_validate(variant)
    ours = our_learner(algorithm)
    theirs = make_learner(service, algorithm=algorithm, optimizer=OPTIMIZER)
    ours.save(tmp_path / "start")
    for each in STEPS:
        mine, served = ours.step(each), await theirs.step(each)
        for name in served.keys() - MEASURED:
            assert served[name] == pytest.approx(mine[name], abs=2e-4), name
    ours.save(tmp_path / "ours")
    theirs.begin_save(tmp_path / "theirs")()
    start, mine_now, served_now = (
        load_file(tmp_path / name / ADAPTER) for name in ("start", "ours", "theirs")
    )
    assert mine_now.keys() == served_now.keys()
    moved = flat(mine_now) - flat(start)
    # Adam makes whole steps of gradients that are next to nothing: single values may be apart.
    assert float((flat(mine_now) - flat(served_now)).norm()) < 2e-3 * float(moved.norm())
    assert float(moved.norm()) > 1.0
    assert theirs.version == ours.version == len(STEPS)


async def test_the_metrics_are_those_of_our_learner_where_they_can_be(
    service: TinkerService,
) -> None:
    mine = our_learner(AlgorithmSpec()).step(batch())
    served = await make_learner(service, optimizer=OPTIMIZER).step(batch())
    # Entropy takes the scores of the whole vocabulary, and the memory is the server's.
    assert mine.keys() - served.keys() == {"policy/policy_entropy", "policy/peak_memory_gib"}
    assert served.keys() <= mine.keys()


async def test_gradients_point_the_same_way_from_an_adapter_that_was_trained(
    service: TinkerService, tmp_path: Path
) -> None:
    algorithm = AlgorithmSpec()
    ours, theirs = our_learner(algorithm), make_learner(service, optimizer=OPTIMIZER)
    for each in STEPS[:3]:
        ours.step(each)
        await theirs.step(each)
    gradient = gradient_of(ours, batch())
    moved = moved_by(theirs, batch(), tmp_path)
    cosine = torch.nn.functional.cosine_similarity(gradient, -moved, dim=0)
    assert float(cosine) >= 0.9999
    assert float(moved.norm() / gradient.norm()) == pytest.approx(1.0, rel=1e-2)


def gradient_of(learner: LearnerRank, of: Batch) -> torch.Tensor:
    """Of our learner's loss by each factor of the adapter, in the order of their names."""
    learner._optimizer.zero_grad(set_to_none=True)
    for micro in learner._pack(of.mini_batches[0]):
        learner._backward(learner._with_other_policies(micro))
    named = {
        f"base_model.model.{name.replace('.default', '')}": each.grad.full_tensor()
        for name, each in learner._models.trained.items()
    }
    return flat(named)


def moved_by(learner: TinkerLearner, of: Batch, root: Path) -> torch.Tensor:
    """By how far a step of the server moves each factor.

    Without momentum and with a large eps, Adam moves by lr / eps times the gradient.
    """
    client, loss = learner._training, loss_of(AlgorithmSpec())
    data = data_of(of.mini_batches[0], learner._data)
    learner.begin_save(root / "before")()
    client.forward_backward(data, loss.name, loss.config).result(60.0)
    steep = types.AdamParams(learning_rate=1e4, beta1=0.0, beta2=0.0, eps=1e4)
    client.optim_step(steep).result(60.0)
    learner.begin_save(root / "after")()
    before, after = load_file(root / "before" / ADAPTER), load_file(root / "after" / ADAPTER)
    return flat({name: after[name].double() - before[name].double() for name in before})


async def test_a_sequence_is_scored_as_our_learner_scores_it(service: TinkerService) -> None:
    ours, theirs = our_learner(AlgorithmSpec()), make_learner(service, optimizer=OPTIMIZER)
    ids = random_ids(40, seed=3)
    for each in STEPS[:2]:
        ours.step(each)
        await theirs.step(each)
    torch.testing.assert_close(await theirs.logprobs(ids), ours.logprobs(ids), atol=1e-4, rtol=0)
