"""Ranks that share sequences compute what one rank computes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec
from tests.trainer.fixtures.families import family_model
from tests.trainer.fixtures.tiny import random_ids, tiny_config
from tests.trainer.learners.context.divided import (
    CASES,
    TRAINED,
    WORLDS,
    World,
    families,
    pass_over,
    rank_of,
    run,
    train,
    train_experts,
)
from tests.trainer.learners.ranks.test_two_ranks import SPENT, threads
from trainer.errors import SpecError
from trainer.learners.context.group import context_group
from trainer.learners.model.policy import refuse_indivisible

# Whichever comes first waits for the processes of its world.
pytestmark = pytest.mark.invariant("ranks that share sequences compute what one computes alone")

GROUPS = [
    pytest.param(
        world,
        size,
        # Four ranks play both: a group of all, and pairs. Two ranks alone show nothing more.
        marks=[pytest.mark.long] if world.num_ranks == 2 else [],
        id=f"{size} of {world.num_ranks}",
    )
    for world in WORLDS
    for size in world.sizes
]
"""Ranks, and how many of them share a sequence: 2 of 2, 4 of 4, and two pairs beside each other."""
Played = Callable[[World], Path]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One rank's passes and training; its checkpoint lies where the worlds look for it."""
    path = tmp_path_factory.mktemp("context")
    with threads(1):
        passes = {name: pass_over(rank_of(options)) for name, options in CASES.items()}
        rank = rank_of(TRAINED)
        metrics = train(rank)
        values = rank.take_token_values()
        logprobs = rank.logprobs(random_ids(30, seed=5))
        rank.write_weights(path / "trained-1.safetensors")
        rank.save(path / "saved-1")
        rank.step(families())
        rank.write_weights(path / "uninterrupted-1.safetensors")
        sparse, loads = train_experts()
        sparse.write_weights(path / "experts-1.safetensors")
    return path, {
        "experts": loads,
        "passes": passes,
        "metrics": metrics,
        "values": values,
        "logprobs": logprobs,
    }


@pytest.fixture(scope="module")
def played(alone: tuple[Path, dict[str, Any]]) -> Played:
    """The folder of a world, whose processes play when it is first asked for."""

    @cache
    def play(world: World) -> Path:
        folder = alone[0] / str(world.num_ranks)
        run(world, folder)
        return folder

    return play


def gap(first: Path, second: Path) -> float:
    """Largest difference of two sets of weights."""
    a, b = load_file(first), load_file(second)
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("world", "size"), GROUPS)
def test_logprobs_loss_and_gradients_are_those_of_one_rank(
    alone: tuple[Path, dict[str, Any]], played: Played, case: str, world: World, size: int
) -> None:
    found = torch.load(played(world) / f"passes-{size}.pt", weights_only=False)[case]
    expected = alone[1]["passes"][case]
    assert found["logprobs"].keys() == expected["logprobs"].keys()
    assert {len(each[0]) for each in found["logprobs"].values()} >= {1, 35}
    for name, each in expected["logprobs"].items():
        torch.testing.assert_close(
            torch.tensor(found["logprobs"][name]), torch.tensor(each), atol=1e-5, rtol=1e-5
        )
    for name, each in expected["gradients"].items():
        torch.testing.assert_close(found["gradients"][name], each, atol=1e-5, rtol=1e-5)
    assert max(float(each.abs().max()) for each in expected["gradients"].values()) > 1e-2
    mine, its = found["update"], expected["update"]
    for field in fields(mine.stats):
        assert getattr(mine.stats, field.name) == pytest.approx(
            getattr(its.stats, field.name), rel=1e-5, abs=1e-5
        ), field.name
    assert mine.entropy == pytest.approx(its.entropy, rel=1e-5)


@pytest.mark.parametrize(("world", "size"), GROUPS)
def test_steps_metrics_and_scores_are_those_of_one_rank(
    alone: tuple[Path, dict[str, Any]], played: Played, world: World, size: int
) -> None:
    path = played(world)
    metrics, values, logprobs = torch.load(path / f"trained-{size}.pt", weights_only=False)
    for step, (one, shared) in enumerate(zip(alone[1]["metrics"], metrics, strict=True)):
        assert one.keys() == shared.keys()
        for name in one.keys() - set(SPENT):
            assert shared[name] == pytest.approx(one[name], rel=1e-5, abs=1e-5), (step, name)
    assert gap(alone[0] / "trained-1.safetensors", path / f"trained-{size}.safetensors") < 1e-5
    torch.testing.assert_close(logprobs, alone[1]["logprobs"], atol=1e-5, rtol=1e-5)
    # One rank of each group has the values of the group's tokens, and the others none.
    counts = [len(each) for each in values]
    assert sum(counts) == len(alone[1]["values"])
    assert not any(counts[rank] for rank in range(world.num_ranks) if rank % size)


@pytest.mark.parametrize(("world", "size"), GROUPS)
def test_a_checkpoint_of_any_group_goes_on_in_any_other(
    alone: tuple[Path, dict[str, Any]], played: Played, world: World, size: int
) -> None:
    path = played(world)
    own = path / f"uninterrupted-{size}.safetensors"
    assert gap(own, path / f"resumed-own-{size}.safetensors") == 0.0
    assert gap(own, path / f"resumed-one-{size}.safetensors") < 1e-5
    with threads(1):
        rank = rank_of(TRAINED)
        rank.load(path / f"saved-{size}")
        rank.step(families())
    resumed = path / f"resumed-alone-{size}.safetensors"
    rank.write_weights(resumed)
    assert gap(alone[0] / "uninterrupted-1.safetensors", resumed) < 1e-5


@pytest.mark.parametrize(("world", "size"), GROUPS)
def test_a_token_is_computed_by_its_own_experts_on_whichever_rank_it_lies(
    alone: tuple[Path, dict[str, Any]], played: Played, world: World, size: int
) -> None:
    path = played(world)
    metrics = torch.load(path / f"experts-{size}.pt", weights_only=False)
    for one, shared in zip(alone[1]["experts"], metrics, strict=True):
        assert "policy/experts/replayed_otherwise" in one
        for name in one.keys() - set(SPENT):
            assert shared[name] == pytest.approx(one[name], rel=1e-5, abs=1e-5), name
    assert gap(alone[0] / "experts-1.safetensors", path / f"experts-{size}.safetensors") < 1e-5


def test_heads_that_do_not_divide_are_refused_with_sizes_that_do() -> None:
    config = tiny_config()  # 4 heads, 2 of keys and values
    for size in (1, 2, 4):
        refuse_indivisible(config, size)
    with pytest.raises(SpecError, match=r"size 3 does not divide .* use one of 1, 2, 4"):
        refuse_indivisible(config, 3)
    with pytest.raises(SpecError, match=r"linear attention, whose state .* set it to 1"):
        refuse_indivisible(family_model("qwen3_5_text").config, 2)
    with pytest.raises(SpecError, match=r"learner_ranks 1 is no multiple of it"):
        context_group(torch.device("cpu"), 1, 2)


def test_a_spec_has_whole_groups() -> None:
    ranks = {"placement": {"type": "ray", "learner_ranks": 6}}
    spec = make_spec(learner={"context_parallel_size": 3}, **ranks)
    assert isinstance(spec, RunSpec)
    with pytest.raises(ValueError, match=r"placement\.learner_ranks is 6: set placement"):
        make_spec(learner={"context_parallel_size": 4}, **ranks)
