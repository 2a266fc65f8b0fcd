"""A loss brings streams of its own: one file, and the learner carries them without knowing them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.forked import run_ranks
from tests.trainer.fixtures.tiny import tiny_model
from tests.trainer.learners.packing.credited import (
    ALGORITHM,
    BONUSES,
    CREDITS,
    LEVELS,
    a_batch,
    registered,
)
from trainer.algo.sequences import TrainingSequence
from trainer.errors import LearnerError
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank
from trainer.workers.tinker.figures import figures_of

DEADLINE_S = 120.0
OPTIONS = LearnerOptions(
    algorithm=ALGORITHM,
    optimizer=OptimizerSpec(lr=1e-2),
    learner=LearnerSpec(max_micro_tokens=24, logprob_chunk_tokens=8),
)


def learn(path: Path, world: RankGroup | None = None) -> dict[str, float]:
    """Take one step and write the weights after it; a process of its own knows no other loss."""
    torch.set_num_threads(1)
    with registered():
        rank = LearnerRank(tiny_model(), OPTIONS, world)
        metrics = rank.step(a_batch())
    rank.write_weights(path)
    return metrics


def _play(index: int, directory: str) -> None:
    path = Path(directory)
    world = RankGroup(
        rank=index, size=2, init_method=f"file://{path}/meeting", timeout_s=DEADLINE_S
    )
    metrics = learn(path / "two.safetensors", world)
    if index == 0:
        (path / "two.json").write_text(json.dumps(metrics))
    torch.distributed.destroy_process_group()


def by_hand(sequences: tuple[TrainingSequence, ...]) -> float:
    """The loss token by token, in plain Python: the mean over all tokens drawn."""
    rank, terms = LearnerRank(tiny_model(), LearnerOptions()), []
    for each in sequences:
        logprobs = rank.logprobs(each.token_ids).tolist()
        bonus = float(each.streams[BONUSES])
        for at, drawn in enumerate(each.action_mask):
            if drawn:
                value = each.advantage * float(each.streams[CREDITS][at]) + bonus
                terms.append(-(value + int(each.streams[LEVELS][at].sum())) * logprobs[at - 1])
    return sum(terms) / len(terms)


@pytest.mark.invariant("what a loss alone knows of trains on one rank as on two")
def test_one_rank_and_two_take_the_step_that_the_formula_says(tmp_path: Path) -> None:
    alone = learn(tmp_path / "one.safetensors")
    run_ranks(_play, (str(tmp_path),), size=2, deadline_s=DEADLINE_S)
    with registered():
        (sequences,) = a_batch().mini_batches
    assert alone["policy/policy_loss"] == pytest.approx(by_hand(sequences), rel=1e-5)
    assert alone["policy/grad_norm"] > 0.1
    together = json.loads((tmp_path / "two.json").read_text())
    assert together["policy/policy_loss"] == pytest.approx(alone["policy/policy_loss"], rel=1e-5)
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    start = tiny_model().state_dict()
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, atol=1e-5, rtol=0)
    assert any((weights - start[name]).abs().max() > 1e-3 for name, weights in one.items())


def test_streams_are_packed_in_their_type_and_shape_in_the_order_of_the_actions() -> None:
    with registered():
        (sequences,) = a_batch().mini_batches
        packed = LearnerRank(tiny_model(), OPTIONS)._pack(sequences)
    assert len(packed) > 1
    for micro in packed:
        further = micro.actions.further
        places = [np.flatnonzero(each.action_mask) for each in micro.sequences]
        for stream in (CREDITS, LEVELS):
            rows = [
                each.streams[stream][at] for each, at in zip(micro.sequences, places, strict=True)
            ]
            assert np.array_equal(further[stream.name].numpy(), np.concatenate(rows))
        assert further["levels"].dtype == torch.int32
        assert further["levels"].shape[1:] == (2, 3)
        assert further["bonuses"].tolist() == [each.streams[BONUSES] for each in micro.sequences]


def test_a_server_of_tinkers_protocol_is_measured_by_the_same_loss() -> None:
    """Its own losses are fixed, but the figures of an update come from ours."""
    with registered():
        (sequences,) = a_batch().mini_batches
        rank = LearnerRank(tiny_model(), OPTIONS)
        scores = [rank.logprobs(each.token_ids).tolist() for each in sequences]
        served = figures_of(
            sequences,
            scores,
            ALGORITHM,
            max_sequence_length=1024,
            version=0,
            optim_metrics={},
        )
    assert served.stats.policy_loss == pytest.approx(by_hand(sequences), rel=1e-5)


def test_each_turn_has_the_streams_of_its_tokens() -> None:
    step_wise = ALGORITHM.model_copy(update={"step_wise": True})
    with registered():
        whole, turns = (a_batch(each).mini_batches[0] for each in (ALGORITHM, step_wise))
    assert len(turns) > len(whole)
    by_id = {one.rollout_id: one for one in whole}
    for turn in turns:
        one = by_id[turn.rollout_id]
        assert len(turn.streams[LEVELS]) == len(turn.token_ids)
        assert np.array_equal(turn.streams[CREDITS], one.streams[CREDITS][: len(turn.token_ids)])
        assert turn.streams[BONUSES] == one.streams[BONUSES]


def test_a_batch_without_the_losss_streams_is_refused() -> None:
    plain = a_batch(AlgorithmSpec())
    with registered():
        rank = LearnerRank(tiny_model(), OPTIONS)
        with pytest.raises(LearnerError, match="lacks what the loss reads: bonuses, credits, lev"):
            rank.step(plain)


def test_a_stream_has_a_row_for_each_token() -> None:
    with pytest.raises(ValueError, match=r"stream credits has shape \(2,\) for a sequence of 3"):
        CREDITS.values([1.0, 2.0], 3)
