"""What a step learns from under a rule of dynamic sampling, and when it makes do with less."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.spec.training.algorithm import DynamicSamplingSpec
from tests.trainer.fixtures.tiny import group
from trainer.algo.dynamic import SelectedGroups, has_reward_spread, has_signal, select_groups
from trainer.types import Group


def good(key: str) -> Group:
    return group([1.0, 0.0], key=key)


def bad(key: str) -> Group:
    return group([1.0, 1.0], key=key)


def rule(kind: str, **settings: Any) -> DynamicSamplingSpec:
    return DynamicSamplingSpec.model_validate({"type": kind, "max_sample_batches": 3, **settings})


def keys(chosen: SelectedGroups) -> list[str]:
    return [each.task.key for each in chosen.groups]


def test_contrast_needs_two_grades_that_differ() -> None:
    assert has_reward_spread([0.0, 0.5])
    assert not has_reward_spread([0.5, 0.5, None])
    assert not has_reward_spread([0.5, None])


def test_without_a_rule_a_step_learns_from_what_there_is() -> None:
    chosen = select_groups([bad("a"), good("b")], [], rule=None, seed=0)
    assert (keys(chosen), chosen.gave_up, chosen.metrics) == (["a", "b"], None, {})


def test_filter_counts_what_it_took() -> None:
    chosen = select_groups([good("a"), good("b")], [bad("c")], rule=rule("filter"), seed=0)
    assert (keys(chosen), chosen.gave_up) == (["a", "b"], None)
    assert chosen.metrics == {
        "dynamic_sampling/num_sampled_prompts": 3.0,
        "dynamic_sampling/keep_rate": 2 / 3,
    }


def test_filter_says_how_many_places_found_nothing() -> None:
    chosen = select_groups([bad("a"), good("b"), bad("c")], [bad("d")], rule=rule("filter"), seed=0)
    assert keys(chosen) == ["a", "b", "c"]
    assert chosen.gave_up is not None
    assert "2 of the step's 3 slots drew 3 prompts" in chosen.gave_up
    assert "the step learns from 1 groups" in chosen.gave_up


def test_replace_fills_the_places_of_groups_that_teach_nothing() -> None:
    batch = [bad("a"), good("b"), good("c"), bad("d")]

    def replaced(seed: int) -> SelectedGroups:
        return select_groups(batch, [], rule=rule("replace"), seed=seed)

    chosen = replaced(1)
    assert chosen.gave_up is None
    assert keys(chosen)[1:3] == ["b", "c"]
    assert {keys(chosen)[0], keys(chosen)[3]} == {"b", "c"}
    assert keys(replaced(1)) == keys(chosen)
    assert len({tuple(keys(replaced(seed))) for seed in range(9)}) == 2
    assert chosen.metrics == {
        "dynamic_sampling/num_sampled_prompts": 4.0,
        "dynamic_sampling/keep_rate": 0.5,
        "dynamic_sampling/num_replaced_prompts": 2.0,
    }


def test_the_seed_alone_decides_which_groups_are_copied() -> None:
    batch = [good(f"good-{at}") for at in range(9)] + [bad(f"bad-{at}") for at in range(9)]
    first, second, other = (
        keys(select_groups(batch, [], rule=rule("replace"), seed=seed)) for seed in (1, 1, 2)
    )
    assert first == second != other
    assert sorted(first[9:]) == [f"good-{at}" for at in range(9)], "each once where they suffice"


def test_few_groups_are_copied_more_than_once() -> None:
    batch = [bad("a"), good("b"), bad("c"), bad("d")]
    assert (
        keys(select_groups(batch, [], rule=rule("replace", min_replace_ratio=0.2), seed=0))
        == ["b"] * 4
    )


def test_replace_makes_do_with_a_batch_that_has_too_few() -> None:
    batch = [good("a"), bad("b"), bad("c"), bad("d")]
    chosen = select_groups(batch, [good("e")], rule=rule("replace", min_replace_ratio=0.25), seed=0)
    assert keys(chosen) == ["a", "b", "c", "d"]
    assert chosen.metrics["dynamic_sampling/num_replaced_prompts"] == 0.0
    assert chosen.metrics["dynamic_sampling/keep_rate"] == 2 / 5
    assert chosen.gave_up is not None
    assert "3 batches" in chosen.gave_up
    assert "more than 25% of the prompts" in chosen.gave_up


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 5))
def test_a_batch_that_replace_fills_teaches_throughout(kinds: list[bool], seed: int) -> None:
    batch = [(good if kind else bad)(str(at)) for at, kind in enumerate(kinds)]
    chosen = select_groups(batch, [], rule=rule("replace"), seed=seed)
    assert len(chosen.groups) == len(batch)
    assert (chosen.gave_up is None) == all(map(has_signal, chosen.groups))
    assert (chosen.gave_up is None) == (sum(kinds) > 0.3 * len(kinds))
