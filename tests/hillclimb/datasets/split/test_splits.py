"""What a split promises, whatever the dataset: exact sizes, each task once, no way back."""

from __future__ import annotations

import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.datasets.format.lineage import Lineage, SplitRow
from hillclimb.datasets.format.ranks import md5_share, salted_rank
from hillclimb.datasets.format.rows import DatasetError, TaskRow, fingerprint
from hillclimb.datasets.format.stored import read_split_line, split_line
from hillclimb.datasets.split.policies import Md5ThresholdPolicy, PublishedPolicy, RankPolicy
from hillclimb.datasets.split.splits import (
    COPY,
    EVAL_CAP,
    OVERRULED_EVAL,
    OVERRULED_TRAIN,
    TRAIN_CAP,
    TRAINED,
    UNPUBLISHED,
    make_split,
)
from tests.hillclimb.datasets.split.made import (
    ENVS,
    SIZES,
    Policy,
    by_env,
    keys,
    quick,
    reasons,
    split,
)
from tests.hillclimb.datasets.tasks import task, tasks

ROOT = Path(__file__).resolve().parents[4]
SHARES = st.sampled_from([None, 0.5, 0.9])
MOST = st.none() | st.integers(0, 40)
RANK = st.builds(
    RankPolicy,
    eval_ratio=st.sampled_from([0.0, 0.1, 0.2, 0.29, 1.0]),
    min_eval_per_env=st.integers(0, 8),
    max_eval_per_env=MOST,
    min_eval_total=st.sampled_from([0, 6]),
    max_eval_total=MOST,
    max_train_per_env=st.none() | st.integers(1, 40),
    max_train_total=st.none() | st.integers(1, 100),
    held_out_envs=st.sampled_from([{}, {"tool_use": ("outlook",)}]),
    salt=st.integers(0, 3),
    stratify_by=st.sampled_from([(), ("difficulty",), ("difficulty", "task_modality")]),
    trained_may_become_eval=st.booleans(),
)
MD5 = st.builds(
    Md5ThresholdPolicy,
    eval_ratio=st.sampled_from([0.1, 0.2, 0.5]),
    min_eval_per_env=st.integers(0, 8),
    max_eval_per_env=MOST,
    max_eval_total=st.none() | st.integers(1, 40),
    held_out_envs=st.sampled_from([{}, {"tool_use": ("outlook",)}]),
    trained_may_become_eval=st.booleans(),
)


@quick
@given(sizes=SIZES, policy=RANK)
def test_rank_sizes_are_exact_and_caps_hold(sizes: dict[str, int], policy: RankPolicy) -> None:
    rows = tasks(sizes)
    made = split(rows, policy)
    held_out = policy.held_out_envs.get("tool_use", ())
    evals, trains = by_env(rows, made, "eval"), by_env(rows, made, "train")
    wanted = {}
    for env, size in sizes.items():
        target = int(Fraction(str(policy.eval_ratio)) * size)
        if policy.max_eval_per_env is not None:
            target = min(target, policy.max_eval_per_env)
        target = 0 if target < policy.min_eval_per_env else target
        wanted[env] = size if env in held_out else target
    wanted = raised_to_total(sizes, wanted, policy)
    if policy.max_eval_total is None or sum(wanted.values()) <= policy.max_eval_total:
        assert evals == wanted
    else:
        assert sum(evals.values()) == policy.max_eval_total
        assert all(evals[env] <= wanted[env] for env in sizes)
    for env in sizes:
        assert policy.max_train_per_env is None or trains[env] <= policy.max_train_per_env
        assert env not in held_out or trains[env] == 0
        if policy.max_train_per_env is policy.max_train_total is None and env not in held_out:
            assert trains[env] == sizes[env] - evals[env]
    assert policy.max_train_total is None or sum(trains.values()) <= policy.max_train_total


def raised_to_total(
    sizes: dict[str, int], wanted: dict[str, int], policy: RankPolicy
) -> dict[str, int]:
    """One task each in turn until `min_eval_total` is there; as it was, where it never is."""
    raised = dict(wanted)
    least = policy.min_eval_total
    if policy.max_eval_total is not None:
        least = min(least, policy.max_eval_total)
    while policy.eval_ratio and sum(raised.values()) < least:
        before = dict(raised)
        for env in sorted(sizes):
            most = min(
                sizes[env] // 2,
                10_000 if policy.max_eval_per_env is None else policy.max_eval_per_env,
            )
            raised[env] += sum(raised.values()) < least and raised[env] < most
        if raised == before:
            return wanted
    return raised


@pytest.mark.parametrize("size", [12, 40, 49, 50, 55, 59, 60])
def test_one_small_environment_has_as_many_eval_tasks_as_a_run_needs(size: int) -> None:
    rows = tasks({"booking": size})
    first = split(rows, RankPolicy())
    assert (len(keys(first, "eval")), len(keys(first, "train"))) == (6, size - 6)
    assert keys(split(rows, RankPolicy(), first), "eval") == keys(first, "eval")


def test_where_the_least_cannot_be_had_or_was_not_asked_for_the_shares_stay() -> None:
    assert keys(split(tasks({"booking": 11}), RankPolicy()), "eval") == set()
    rows = tasks({"booking": 40})
    for given_up in ({"min_eval_total": 0}, {"eval_ratio": 0.0}, {"max_eval_per_env": 5}):
        assert keys(split(rows, RankPolicy.model_validate(given_up)), "eval") == set()
    two = by_env(
        rows_of_two := tasks({"booking": 8, "fira": 30}), split(rows_of_two, RankPolicy()), "eval"
    )
    assert two == {"booking": 3, "fira": 3}
    beside = tasks({"booking": 100, "fira": 30})
    assert by_env(beside, split(beside, RankPolicy()), "eval") == {"booking": 10, "fira": 0}


@quick
@given(
    sizes=SIZES,
    steps=st.lists(st.tuples(st.integers(0, 30), RANK | MD5), min_size=1, max_size=4),
)
def test_the_table_of_a_lineage_says_what_all_its_versions_say(
    sizes: dict[str, int], steps: list[tuple[int, Policy]]
) -> None:
    versions: list[tuple[SplitRow, ...]] = []
    table: tuple[SplitRow, ...] = ()
    for start, policy in steps:
        made = split(tasks(sizes, start=start), policy, *versions)
        assert split(tasks(sizes, start=start), policy, table) == made
        versions.append(made)
        table = tuple(Lineage.table([table, made]))
        assert Lineage.of([table]) == Lineage.of(versions)


@quick
@given(sizes=SIZES, policy=RANK | MD5, seed=st.integers(0, 99))
def test_each_task_is_in_one_split_whatever_the_order(
    sizes: dict[str, int], policy: Policy, seed: int
) -> None:
    rows = tasks(sizes)
    excluded = {row.key: "user: out" for row in rows[::7]}
    made = split(rows, policy, excluded=excluded)
    assert [each.key for each in made] == sorted(row.key for row in rows)
    assert all((each.reason is not None) == (each.split == "excluded") for each in made)
    assert {each.key: each.reason for each in made if each.key in excluded} == excluded
    shuffled = random.Random(seed).sample(rows, len(rows))
    assert split(shuffled, policy, excluded=excluded) == made


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(ENVS), st.integers(1, 60), min_size=1),
            st.integers(0, 30),
            RANK | MD5,
        ),
        min_size=2,
        max_size=4,
    )
)
def test_eval_never_becomes_train_over_a_chain_of_versions(steps: list[Any]) -> None:
    """Data grow, shrink and shift, policies change: no task goes from eval to train, or back."""
    versions: list[tuple[SplitRow, ...]] = []
    ever_eval: set[str] = set()
    ever_train: set[str] = set()
    for sizes, start, policy in steps:
        made = split(tasks(sizes, start=start), policy, *versions)
        assert not keys(made, "train") & ever_eval
        if not policy.trained_may_become_eval:
            assert not keys(made, "eval") & (ever_train - ever_eval)
        ever_eval |= keys(made, "eval")
        ever_train |= keys(made, "train")
        versions.append(made)


def test_the_split_does_not_depend_on_the_process() -> None:
    """Another hash seed, another locale: the same hashes (`test_prepare` has them written down)."""
    code = (
        "from tests.hillclimb.datasets.test_prepare import *;"
        "print(prepare(tasks({'booking': 100, 'zillow': 60}), OPTIONS, now=NOW).digest)"
    )
    digests = set()
    for seed, locale in (("0", "C"), ("7", "tr_TR.UTF-8")):
        environ = {"PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, cwd=ROOT, check=True, capture_output=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_growing_data_keeps_the_eval_tasks_and_takes_new_ones_from_new_tasks() -> None:
    """600 tasks become 6,000: the historic rule moved 83 of 96 eval tasks into train."""
    policy = RankPolicy(eval_ratio=0.02, max_eval_per_env=None)
    first = split(tasks({"booking": 600}), policy)
    second = split(tasks({"booking": 6000}), policy, first)
    assert len(keys(first, "eval")) == 12
    assert keys(first, "eval") < keys(second, "eval")
    assert keys(first, "train") < keys(second, "train")
    assert len(keys(second, "eval")) == 120


def test_a_larger_eval_share_of_the_same_data_needs_leave_to_take_training_tasks() -> None:
    rows = tasks({"booking": 100})
    first = split(rows, RankPolicy(eval_ratio=0.1))
    more = RankPolicy(eval_ratio=0.2)
    allowed = RankPolicy(eval_ratio=0.2, trained_may_become_eval=True)
    assert keys(split(rows, more, first), "eval") == keys(first, "eval")
    taken = keys(split(rows, allowed, first), "eval")
    assert len(taken) == 20
    assert taken > keys(first, "eval")


def test_an_eval_task_that_comes_back_after_a_version_without_it_is_an_eval_task() -> None:
    rows = tasks({"booking": 100})
    policy = RankPolicy()
    first = split(rows, policy)
    without = split([row for row in rows if row.key not in keys(first, "eval")], policy, first)
    assert keys(split(rows, policy, first, without), "eval") == keys(first, "eval")


def test_an_eval_task_under_a_new_key_is_known_by_what_it_asks() -> None:
    rows = tasks({"booking": 100})
    first = split(rows, RankPolicy())
    renamed = [row.model_copy(update={"key": f"new-{row.key}"}) for row in rows]
    second = split(renamed, RankPolicy(), first)
    assert keys(second, "eval") == {f"new-{key}" for key in keys(first, "eval")}
    both = split([*rows, *renamed], RankPolicy(), first)
    assert keys(both, "eval") == keys(first, "eval")
    assert {key for key, reason in reasons(both).items() if reason == COPY} == {
        f"new-{key}" for key in keys(first, "eval")
    }


def test_of_two_tasks_that_ask_the_same_and_were_split_the_trained_one_never_evaluates() -> None:
    twins = [task("a", prompt="Same."), task("b", prompt="Same.")]
    first = split(twins, PublishedPolicy(splits={"a": "eval", "b": "train"}))
    second = split([twins[1]], RankPolicy(), first)
    assert reasons(second) == {"b": COPY}


def test_a_task_that_two_lines_of_ancestors_used_for_both_is_neither() -> None:
    """fleet@1 trained on all, other@1 evaluated on ten: fleet@2 with that parent took them."""
    rows = tasks({"booking": 100})
    prints = {row.key: fingerprint(row) for row in rows}
    ten = {row.key for row in rows[:10]}
    fleet = split(rows, RankPolicy(eval_ratio=0.0))
    other = split(rows[:10], PublishedPolicy(splits=dict.fromkeys(ten, "eval")))

    def after(
        lineage: Lineage, policy: Policy, given: list[TaskRow] = rows
    ) -> tuple[tuple[SplitRow, ...], Lineage]:
        made = make_split(given, prints, policy, excluded={}, lineage=lineage)
        used = [fleet, other, made]
        table = [read_split_line(split_line(row)) for row in lineage.marks(made)]
        return made, Lineage.of([Lineage.table(used), table])

    met = Lineage.joined([Lineage.of([fleet]), Lineage.of([other])])
    assert met == Lineage.joined([Lineage.of([other]), Lineage.of([fleet])])
    for policy in (RankPolicy(), Md5ThresholdPolicy(max_env_train_share=None)):
        made, line = after(met, policy)
        assert {key for key, why in reasons(made).items() if why == TRAINED} == ten
        again, _ = after(Lineage.joined([line]), policy)
        assert reasons(again) == reasons(made), "in every later version"
    published = PublishedPolicy(
        splits={row.key: "eval" for row in rows[:5]} | {row.key: "train" for row in rows[5:8]}
    )
    made, _ = after(met, published)
    told = reasons(made)
    assert [told[row.key] for row in rows[:5]] == [OVERRULED_EVAL] * 5
    assert [told[row.key] for row in rows[5:8]] == [OVERRULED_TRAIN] * 3
    assert [told[row.key] for row in rows[8:10]] == [UNPUBLISHED] * 2
    _, without = after(met, RankPolicy(), rows[10:])
    assert not keys(after(without, RankPolicy())[0], "eval") & ten, "also when they come back"
    renamed = [row.model_copy(update={"key": f"new-{row.key}"}) for row in rows]
    prints |= {row.key: fingerprint(row) for row in renamed}
    assert not keys(after(met, RankPolicy(), renamed)[0], "eval") & {f"new-{key}" for key in ten}
    allowed, line = after(met, RankPolicy(trained_may_become_eval=True))
    assert keys(allowed, "eval") >= ten
    assert keys(after(line, RankPolicy())[0], "eval") >= ten, "that version allowed it"


def test_an_environment_held_out_after_it_was_trained_on_is_excluded() -> None:
    rows = tasks({"outlook": 20, "booking": 20})
    held_out = RankPolicy(held_out_envs={"tool_use": ("outlook",)})
    first = split(rows, RankPolicy(min_eval_per_env=1))
    second = split(rows, held_out, first)
    outlook = {row.key for row in rows if row.env_key == "outlook"}
    assert keys(second, "eval") >= outlook & keys(first, "eval")
    assert reasons(second) == dict.fromkeys(outlook & keys(first, "train"), TRAINED)


def test_an_environment_is_held_out_in_one_modality_only() -> None:
    rows = tasks({"instacart": 10})
    rows += tasks({"instacart": 10}, start=10, task_modality="computer_use")
    policy = RankPolicy(held_out_envs={"computer_use": ("instacart",)})
    assert keys(split(rows, policy), "eval") == {row.key for row in rows[10:]}


def test_eval_tasks_above_a_new_cap_are_excluded_and_old_ones_stay_before_new_ones() -> None:
    rows = tasks({"booking": 100, "zillow": 100})
    first = split(rows, RankPolicy())
    capped = RankPolicy(max_eval_total=25)
    grown = tasks({"booking": 400, "zillow": 100, "fira": 100})
    second = split(grown, capped, first)
    assert keys(second, "eval") > keys(first, "eval")
    assert len(keys(second, "eval")) == 25
    assert reasons(second) == {}
    third = split(grown, RankPolicy(max_eval_total=7), first, second)
    assert len(keys(third, "eval")) == 7
    assert set(reasons(third).values()) == {EVAL_CAP}
    assert keys(second, "eval") == keys(third, "eval") | set(reasons(third))


def test_the_share_of_one_environment_is_what_was_asked() -> None:
    sizes = {"google-maps": 4695, "github": 2048, "booking": 1313, "fostgres": 923, "reddit": 432}
    rows = tasks(sizes)
    made = split(rows, RankPolicy(eval_ratio=0.0, max_env_train_share=0.25))
    trains = by_env(rows, made, "train")
    assert max(trains.values()) / sum(trains.values()) <= 0.25
    # c <= 0.25 (3 c + 923 + 432) holds up to c = 1355, above booking's 1313: two are cut.
    # c <= 0.25 (2 c + 1313 + 923 + 432) holds up to c = 1334.
    assert trains == {
        "google-maps": 1334,
        "github": 1334,
        "booking": 1313,
        "fostgres": 923,
        "reddit": 432,
    }
    assert set(reasons(made).values()) == {TRAIN_CAP}


def test_a_share_never_shrinks_a_single_environment_and_is_refused_where_it_cannot_hold() -> None:
    one = split(tasks({"booking": 500}), RankPolicy(max_env_train_share=0.2))
    assert len(keys(one, "train")) == 450
    with pytest.raises(DatasetError, match=r"3 environments .* Set it to 0\.33 or more"):
        split(tasks({"a": 9, "b": 9, "c": 9}), RankPolicy(max_env_train_share=0.2))


def ranked(rows: list[TaskRow], salt: int = 0) -> list[str]:
    return sorted((row.key for row in rows), key=lambda key: salted_rank(key, salt))


@pytest.mark.parametrize("salt", [0, 3])
def test_the_lowest_ranks_evaluate_the_next_ones_train_and_the_others_are_excluded(
    salt: int,
) -> None:
    rows = tasks({"booking": 100})
    made = split(rows, RankPolicy(salt=salt, max_train_per_env=30))
    order = ranked(rows, salt)
    assert keys(made, "eval") == set(order[:10])
    assert keys(made, "train") == set(order[10:40])
    assert reasons(made) == dict.fromkeys(order[40:], TRAIN_CAP)


def test_held_out_tasks_are_cut_to_the_total_by_rank() -> None:
    rows = tasks({"outlook": 20})
    policy = RankPolicy(held_out_envs={"tool_use": ("outlook",)}, max_eval_total=5)
    made = split(rows, policy)
    assert keys(made, "eval") == set(ranked(rows)[:5])
    assert reasons(made) == dict.fromkeys(ranked(rows)[5:], EVAL_CAP)


def test_old_eval_tasks_above_a_new_limit_of_the_environment_are_excluded_by_rank() -> None:
    rows = tasks({"booking": 100})
    first = split(rows, RankPolicy(eval_ratio=0.2))
    order = ranked(rows)
    fewer = split(rows, RankPolicy(max_eval_per_env=7), first)
    assert keys(fewer, "eval") == set(order[:7])
    assert reasons(fewer) == dict.fromkeys(order[7:20], EVAL_CAP)
    unlimited = split(rows, RankPolicy(max_eval_per_env=None), first)
    assert keys(unlimited, "eval") == set(order[:20])
    assert {each.reason for each in unlimited} == {None}


def test_what_the_total_lacks_comes_from_environments_with_room_alone() -> None:
    """Booking may have four eval tasks, and has them; half of fira's four are the other two."""
    rows = tasks({"booking": 40, "fira": 4})
    policy = RankPolicy(
        max_eval_per_env=4, min_eval_per_env=1, min_eval_total=6, trained_may_become_eval=True
    )
    assert by_env(rows, split(rows, policy), "eval") == {"booking": 4, "fira": 2}
    first = split(rows[:40], policy)
    assert len(keys(first, "eval")) == 4
    assert by_env(rows, split(rows, policy, first), "eval") == {"booking": 4, "fira": 2}
    more = policy.model_copy(update={"min_eval_total": 7})
    assert by_env(rows, split(rows, more), "eval") == {"booking": 4, "fira": 0}


def test_the_share_is_cut_between_two_environments_as_well() -> None:
    """c <= 0.6 (c + 10) holds up to c = 15."""
    rows = tasks({"booking": 90, "fira": 10})
    made = split(rows, RankPolicy(eval_ratio=0.0, max_env_train_share=0.6))
    assert by_env(rows, made, "train") == {"booking": 15, "fira": 10}
    assert keys(made, "train") >= set(ranked(rows[:90])[:15])


def test_a_threshold_spares_what_was_trained_on_unless_it_is_allowed() -> None:
    rows = tasks({"booking": 200})
    trained = split(rows, PublishedPolicy(splits={row.key: "train" for row in rows}))
    policy = Md5ThresholdPolicy(eval_ratio=0.1, max_eval_per_env=None, max_env_train_share=None)
    assert keys(split(rows, policy, trained), "eval") == set()
    allowed = policy.model_copy(update={"trained_may_become_eval": True})
    below = {row.key for row in rows if md5_share(row.key) < 0.1}
    assert keys(split(rows, allowed, trained), "eval") == below != set()


def test_under_a_threshold_old_eval_tasks_stay_before_new_ones() -> None:
    policy = Md5ThresholdPolicy(
        eval_ratio=0.1, max_eval_per_env=None, keep_eval_per_env=0, max_env_train_share=None
    )
    first = split(tasks({"booking": 200}), policy)
    old = keys(first, "eval")
    grown = tasks({"booking": 600})
    assert len(keys(split(grown, policy, first), "eval")) > len(old) > 5
    capped = policy.model_copy(update={"max_eval_total": len(old)})
    second = split(grown, capped, first)
    assert keys(second, "eval") == old
    assert set(reasons(second).values()) == {EVAL_CAP}


def test_under_a_threshold_an_environment_held_out_too_late_is_excluded_as_well() -> None:
    rows = tasks({"outlook": 20})
    first = split(rows, PublishedPolicy(splits={row.key: "train" for row in rows[:5]}))
    held_out = Md5ThresholdPolicy(held_out_envs={"tool_use": ("outlook",)})
    second = split(rows, held_out, first)
    assert reasons(second) == {row.key: TRAINED for row in rows[:5]}
    assert keys(second, "eval") == {row.key for row in rows[5:]}
