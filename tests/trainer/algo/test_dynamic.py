"""Which groups a step keeps, when it samples again, and when it makes do."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.tiny import group
from trainer.algo.dynamic import Collected, SamplingRule, has_contrast
from trainer.types import Group


def good(key: str) -> Group:
    return group([1.0, 0.0], key=key)


def bad(key: str) -> Group:
    return group([1.0, 1.0], key=key)


def start(
    kind: Literal["filter", "replace"] | None, *, num: int = 4, batches: int = 3, ratio: float = 0.3
) -> Collected:
    return Collected(
        rule=SamplingRule(
            type=kind, num_prompts=num, max_sample_batches=batches, min_replace_ratio=ratio
        )
    )


def keys(collected: Collected) -> list[str]:
    return [each.task.key for each in collected.groups]


def test_contrast_needs_two_grades_that_differ() -> None:
    assert has_contrast(group([0.0, 0.5]))
    assert not has_contrast(group([0.5, 0.5, None]))
    assert not has_contrast(group([0.5, None]))


def test_without_a_rule_the_first_batch_is_the_step() -> None:
    done = start(None).add([bad("a"), good("b")], seed=0)
    assert (done.is_complete, done.num_missing, keys(done)) == (True, 0, ["a", "b"])


def test_filter_keeps_what_teaches_until_there_is_enough() -> None:
    empty = start("filter")
    assert empty.num_missing == 4
    first = empty.add([good("a"), bad("b"), good("c"), bad("d")], seed=0)
    assert (first.is_complete, first.num_missing, keys(first)) == (False, 2, ["a", "c"])
    done = first.add([good("e"), good("f"), good("g")], seed=0)
    assert (done.is_complete, done.num_missing, keys(done)) == (True, 0, ["a", "c", "e", "f"])
    assert done.metrics == {
        "dynamic_sampling/num_batches": 2.0,
        "dynamic_sampling/num_sampled_prompts": 7.0,
        "dynamic_sampling/num_replaced_prompts": 0.0,
        "dynamic_sampling/keep_rate": 5 / 7,
    }
    assert keys(empty) == []


def test_filter_gives_up_with_what_it_has() -> None:
    collected = start("filter", batches=2)
    for _ in range(2):
        assert not collected.gave_up
        collected = collected.add([bad("a"), good("b")], seed=0)
    assert (collected.gave_up, collected.num_missing, keys(collected)) == (True, 0, ["b", "b"])


def test_the_last_batch_allowed_may_complete_the_step() -> None:
    collected = start("filter", num=1, batches=1).add([good("a")], seed=0)
    assert collected.is_complete
    assert not collected.gave_up


def test_replace_fills_the_places_of_groups_that_teach_nothing() -> None:
    batch = [bad("a"), good("b"), good("c"), bad("d")]
    done = start("replace").add(batch, seed=1)
    assert done.is_complete
    assert keys(done)[1:3] == ["b", "c"]
    assert {keys(done)[0], keys(done)[3]} == {"b", "c"}
    assert done.num_replaced == 2
    assert keys(start("replace").add(batch, seed=1)) == keys(done)
    assert len({tuple(keys(start("replace").add(batch, seed=seed))) for seed in range(9)}) == 2


def test_few_groups_are_copied_more_than_once() -> None:
    done = start("replace", ratio=0.2).add([bad("a"), good("b"), bad("c"), bad("d")], seed=0)
    assert keys(done) == ["b"] * 4


def test_replace_samples_a_whole_batch_again_when_too_few_teach() -> None:
    first = start("replace", ratio=0.25, batches=2).add([good("a"), *map(bad, "bcd")], seed=0)
    assert (first.is_complete, first.num_missing) == (False, 4)
    second = first.add([good("e"), good("f"), bad("g"), bad("h")], seed=0)
    assert second.is_complete
    assert set(keys(second)) == {"e", "f"}


def test_replace_gives_up_with_the_last_batch_as_it_is() -> None:
    collected = start("replace", batches=1).add([bad("a"), bad("b"), good("c"), bad("d")], seed=0)
    assert collected.gave_up
    assert keys(collected) == ["a", "b", "c", "d"]


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=6),
    st.sampled_from(["filter", "replace"]),
    st.integers(1, 5),
)
def test_a_complete_step_has_as_many_groups_as_asked_for_and_all_of_them_teach(
    batches: list[list[bool]], kind: Literal["filter", "replace"], num: int
) -> None:
    collected = start(kind, num=num, batches=4)
    for index, batch in enumerate(batches):
        if not collected.num_missing:
            break
        made = [(good if teaches else bad)(f"{index}-{at}") for at, teaches in enumerate(batch)]
        collected = collected.add(made, seed=index)
    assert collected.num_batches <= 4
    if collected.is_complete:
        assert all(map(has_contrast, collected.groups))
        if kind == "filter":
            assert len(collected.groups) == num
            assert len(set(keys(collected))) == num
