"""Strata get their exact shares: compared with slower ways of saying the same."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hillclimb.datasets.format.lineage import Lineage, SplitRow
from hillclimb.datasets.format.ranks import salted_rank
from hillclimb.datasets.format.rows import TaskRow, fingerprint
from hillclimb.datasets.split.policies import RankPolicy
from hillclimb.datasets.split.splits import make_split
from hillclimb.datasets.split.strata import StratumPool
from tests.hillclimb.datasets.tasks import task

quick = settings(max_examples=80, deadline=None)
KINDS = {"1": 40, "2": 25, "3": 10, "none": 3}
SIZES = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 12), min_size=1)


def pool_of(sizes: dict[str, int]) -> StratumPool:
    """A pool whose keys say their kind; the kinds are mixed."""
    keys = sorted((f"{kind}{n}" for kind, size in sizes.items() for n in range(size)), key=hash_)
    return StratumPool(tasks=keys, free=keys, kinds={key: (key[0],) for key in keys})


def hash_(key: str) -> tuple[int, str]:
    return salted_rank(key, 0)


def counts(keys: list[str]) -> dict[str, int]:
    return dict(Counter(key[0] for key in keys))


@quick
@given(sizes=SIZES, number=st.integers(0, 40))
def test_parts_are_those_of_largest_remainders(sizes: dict[str, int], number: int) -> None:
    pool = pool_of(sizes)
    number = min(number, len(pool.tasks))
    shares = {kind: Fraction(number * size, len(pool.tasks)) for kind, size in sizes.items()}
    expected = {kind: int(share) for kind, share in shares.items()}
    by_remainder = sorted(sizes, key=lambda kind: (expected[kind] - shares[kind], kind))
    for kind in by_remainder[: number - sum(expected.values())]:
        expected[kind] += 1
    drawn = pool.draw(number, beside=[])
    assert counts(drawn) == {kind: n for kind, n in expected.items() if n}
    for kind in sizes:
        of_kind = [key for key in pool.free if key[0] == kind]
        assert [key for key in drawn if key[0] == kind] == of_kind[: expected[kind]]


@quick
@given(
    sizes=st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=1),
    number=st.integers(0, 12),
    given_to=st.lists(st.sampled_from("abc"), max_size=6),
    barred=st.integers(1, 5),
)
def test_what_is_drawn_beside_given_tasks_comes_nearest_to_the_shares(
    sizes: dict[str, int], number: int, given_to: list[str], barred: int
) -> None:
    """Against trying every way to draw so many."""
    whole = pool_of(sizes)
    beside = [key for key in whole.tasks if key[0] in given_to][: len(given_to)]
    free = [key for key in whole.tasks if key not in beside][::barred]
    drawn = StratumPool(tasks=whole.tasks, free=free, kinds=whole.kinds).draw(number, beside=beside)
    assert len(drawn) == len(set(drawn)) == min(number, len(free))
    total, taken, there = len(drawn) + len(beside), counts(beside), counts(free)

    def distance(parts: dict[str, int]) -> Fraction:
        short = (
            Fraction(total * size, len(whole.tasks)) - taken.get(kind, 0) - parts.get(kind, 0)
            for kind, size in sizes.items()
        )
        return sum((each * each for each in short), Fraction(0))

    ways = itertools.product(*(range(there.get(kind, 0) + 1) for kind in sizes))
    possible = [dict(zip(sizes, way, strict=True)) for way in ways if sum(way) == len(drawn)]
    assert distance(counts(drawn)) == min(map(distance, possible))


def rows_of(sizes: dict[str, int], env_key: str = "booking") -> list[TaskRow]:
    return [
        task(f"{env_key}_{kind}_{n}", env_key, difficulty=None if kind == "none" else int(kind))
        for kind, size in sizes.items()
        for n in range(size)
    ]


def evals(
    rows: list[TaskRow], policy: RankPolicy, *versions: tuple[SplitRow, ...]
) -> dict[str, dict[str, int]]:
    """Eval tasks by environment and difficulty."""
    made = split(rows, policy, *versions)
    chosen = {each.key for each in made if each.split == "eval"}
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.key in chosen:
            kinds = found.setdefault(row.env_key, {})
            kinds[str(row.difficulty)] = kinds.get(str(row.difficulty), 0) + 1
    return found


def split(
    rows: list[TaskRow], policy: RankPolicy, *versions: tuple[SplitRow, ...]
) -> tuple[SplitRow, ...]:
    prints = {row.key: fingerprint(row) for row in rows}
    return make_split(rows, prints, policy, excluded={}, lineage=Lineage.of(versions))


def test_each_difficulty_gets_its_share_of_an_environments_eval_tasks() -> None:
    rows = rows_of(KINDS) + rows_of({"2": 30, "3": 30}, "zillow")
    policy = RankPolicy(eval_ratio=0.2, stratify_by=("difficulty",))
    # 15 of 78: 40/78, 25/78, 10/78 and 3/78 of them are 7.69, 4.81, 1.92 and 0.58.
    assert evals(rows, policy) == {
        "booking": {"1": 8, "2": 5, "3": 2},
        "zillow": {"2": 6, "3": 6},
    }
    plain = evals(rows, RankPolicy(eval_ratio=0.2))
    assert {env: sum(kinds.values()) for env, kinds in plain.items()} == {
        "booking": 15,
        "zillow": 12,
    }
    assert plain != evals(rows, policy), "by chance they differ from the shares"


def test_shares_hold_under_a_total_and_in_the_next_version() -> None:
    rows = rows_of({"1": 60, "3": 30}) + rows_of({"1": 60, "3": 30}, "zillow")
    policy = RankPolicy(eval_ratio=0.2, stratify_by=("difficulty",), max_eval_total=18)
    assert evals(rows, policy) == {"booking": {"1": 6, "3": 3}, "zillow": {"1": 6, "3": 3}}
    lopsided = split(rows[:60], RankPolicy(eval_ratio=0.1))
    more = policy.model_copy(update={"max_eval_total": None, "trained_may_become_eval": True})
    grown = evals(rows, more, lopsided)
    assert grown["booking"] == {"1": 12, "3": 6}, "six easy ones were eval tasks already"


def test_under_a_total_the_new_ones_make_up_for_the_kinds_of_the_old_ones() -> None:
    """Six easy eval tasks are old; of twelve, eight are easy and four hard, as of 60 and 30."""
    rows = rows_of({"1": 60, "3": 30})
    first = split(rows[:60], RankPolicy(eval_ratio=0.1))
    policy = RankPolicy(
        eval_ratio=0.2, stratify_by=("difficulty",), max_eval_total=12, trained_may_become_eval=True
    )
    assert evals(rows, policy, first) == {"booking": {"1": 8, "3": 4}}


def test_modalities_are_strata_too() -> None:
    rows = rows_of({"1": 40}) + [
        task(f"seen_{n}", difficulty=1, task_modality="browser_use") for n in range(20)
    ]
    policy = RankPolicy(eval_ratio=0.1, stratify_by=("difficulty", "task_modality"))
    chosen = {each.key for each in split(rows, policy) if each.split == "eval"}
    assert (len(chosen), sum(key.startswith("seen_") for key in chosen)) == (6, 2)
    with pytest.raises(ValidationError, match="Input should be 'difficulty' or 'task_modality'"):
        RankPolicy.model_validate({"stratify_by": ["prompt"]})
