"""From the same adapter and the same rollouts, a server takes the step that our learner takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.fixtures.tiny import random_ids
from tests.trainer.learners.recorded import batch
from tests.trainer.workers.tinker.comparison import (
    ADAPTER,
    OPTIMIZER,
    STEPS,
    adapter_of,
    cosine,
    flat,
    gradient_of,
    our_learner,
    step_along_gradient,
)
from tests.trainer.workers.tinker.server.local import make_learner
from trainer.attempt.timing import SCORING
from trainer.workers.tinker.service import TinkerService

MEASURED = {"policy/tokens_per_second", f"timing/{SCORING}"}
"""Depends on how busy the machine is."""
VARIANTS = [
    {},
    {"loss_reduction": "sequence_mean"},
    {"loss_reduction": "seq_mean_token_sum_norm"},
    {"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_high": 0.5}},
    {"eps_clip_low": 0.01, "eps_clip_high": 0.02},
]


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
    # Entropy takes the scores of the whole vocabulary; memory and FLOPs are the server's.
    unknown = {"policy/policy_entropy", "policy/peak_memory_gib", "policy/flops"}
    assert mine.keys() - served.keys() == unknown
    assert served.keys() <= mine.keys()


async def test_gradients_point_the_same_way_from_an_adapter_that_was_trained(
    service: TinkerService, tmp_path: Path
) -> None:
    algorithm = AlgorithmSpec()
    ours, theirs = our_learner(algorithm), make_learner(service, optimizer=OPTIMIZER)
    for each in STEPS[:3]:
        ours.step(each)
        await theirs.step(each)
    gradient = flat(gradient_of(ours, batch()))
    before = flat(adapter_of(theirs, tmp_path / "before"))
    step_along_gradient(theirs, batch(), algorithm)
    moved = flat(adapter_of(theirs, tmp_path / "after")) - before
    assert cosine(gradient, -moved) >= 0.9999
    assert float(moved.norm() / gradient.norm()) == pytest.approx(1.0, rel=1e-2)


async def test_a_sequence_is_scored_as_our_learner_scores_it(service: TinkerService) -> None:
    ours, theirs = our_learner(AlgorithmSpec()), make_learner(service, optimizer=OPTIMIZER)
    ids = random_ids(40, seed=3)
    for each in STEPS[:2]:
        ours.step(each)
        await theirs.step(each)
    torch.testing.assert_close(await theirs.logprobs(ids), ours.logprobs(ids), atol=1e-4, rtol=0)
