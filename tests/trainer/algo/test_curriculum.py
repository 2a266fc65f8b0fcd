"""Prompts go where groups teach, come back when that changes, and nobody starves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.spec.data import CurriculumSpec
from tests.trainer.fixtures.groups import a_group
from trainer.algo.curriculum import UNITS, Curriculum, Reweighting, whole_shares
from trainer.errors import CheckpointError
from trainer.inputs.tasks.shares import Shares

AT_ONCE = CurriculumSpec(interval=1, min_change=0.0)
TEACHES, SATURATED, HOPELESS = [0.0, 1.0, 0.0, 1.0], [1.0] * 4, [0.0] * 4


def a_step(
    step: int, groups: dict[str, list[float | None]], each: int = 4
) -> list[list[OutcomeRow]]:
    """`each` groups per environment, all scored alike."""
    return [
        a_group(env_key, f"{env_key}/{step}/{index}", scores)
        for env_key, scores in groups.items()
        for index in range(each)
    ]


def test_shares_shift_from_the_saturated_and_the_hopeless_to_what_teaches() -> None:
    curriculum = Curriculum({"a": 1, "b": 1, "c": 1}, AT_ONCE)
    change = curriculum.observe(1, a_step(1, {"a": TEACHES, "b": SATURATED, "c": HOPELESS}))
    # Hope is (taught + 1) / (measured + 1): 5/5, 1/5, 1/5. A fifth goes as without a curriculum.
    assert change is not None
    assert change.new_shares == pytest.approx(
        {
            "a": 0.2 / 3 + 0.8 * 5 / 7,
            "b": 0.2 / 3 + 0.8 * 1 / 7,
            "c": 0.2 / 3 + 0.8 * 1 / 7,
        },
        abs=2e-6,
    )
    assert change.old_shares == pytest.approx(dict.fromkeys("abc", 1 / 3), abs=2e-6)
    assert change.signals == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert change.reason == (
        "a gets more prompts (33.3% -> 63.8%): the scores differ in 100% of its recent groups"
    )


def test_the_reason_names_the_share_that_changed_most_and_what_is_known_there() -> None:
    """Hope 1, 1 and 1/5: 0.2 / 3 + 0.8 / 11 is 13.9 %. Hope 1/5, 1/5 and 1: 0.2 / 3 + 0.8 * 5/7."""
    fewer = Curriculum({"a": 1, "b": 1, "c": 1}, AT_ONCE)
    change = fewer.observe(1, a_step(1, {"a": TEACHES, "b": TEACHES, "c": HOPELESS}))
    assert change is not None
    assert change.reason == (
        "c gets fewer prompts (33.3% -> 13.9%): the scores differ in 0% of its recent groups"
    )
    unmeasured = Curriculum({"a": 1, "b": 1, "c": 1}, AT_ONCE)
    change = unmeasured.observe(1, a_step(1, {"a": HOPELESS, "b": SATURATED}))
    assert change is not None
    assert change.reason == (
        "c gets more prompts (33.3% -> 63.8%): nothing was measured there lately"
    )


def test_metrics_name_an_environment_without_slashes() -> None:
    curriculum = Curriculum({"team/app/web": 1}, AT_ONCE)
    curriculum.observe(1, a_step(1, {"team/app/web": TEACHES}))
    name = "curriculum/team_app_web"
    assert curriculum.metrics() == {f"{name}/share": 1.0, f"{name}/signal": 1.0}


def test_a_late_wave_of_an_earlier_step_ages_nothing() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, CurriculumSpec(interval=3, half_life=1.0))
    curriculum.observe(2, a_step(2, {"a": TEACHES}))
    curriculum.observe(1, a_step(1, {"b": HOPELESS}))
    state = curriculum.state()
    assert state["step"] == 2
    assert state["evidence"] == {"a": [4.0, 4.0], "b": [0.0, 4.0]}
    curriculum.observe(3, [])
    assert curriculum.state()["evidence"] == {"a": [2.0, 2.0], "b": [0.0, 2.0]}


def test_larger_environments_keep_their_weight() -> None:
    curriculum = Curriculum({"a": 30, "b": 10}, AT_ONCE)
    assert curriculum.shares == {"a": 750_000, "b": 250_000}
    assert curriculum.observe(1, a_step(1, {"a": TEACHES, "b": TEACHES})) is None


def test_nothing_measured_changes_nothing() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, AT_ONCE)
    assert curriculum.observe(1, a_step(1, {"stranger": TEACHES})) is None
    assert curriculum.metrics() == {"curriculum/a/share": 0.5, "curriculum/b/share": 0.5}


def test_an_environment_that_is_down_draws_no_prompts_and_gets_them_back_when_it_is_up() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, AT_ONCE)
    for step in range(1, 20):
        curriculum.observe(step, a_step(step, {"a": TEACHES, "b": [None, None, None, 1.0]}))
    assert curriculum.shares["b"] < 0.12 * UNITS
    assert curriculum.metrics()["curriculum/b/signal"] == 0.0
    for step in range(20, 50):
        curriculum.observe(step, a_step(step, {"a": TEACHES, "b": [None, 0.0, None, 1.0]}, 1))
    assert curriculum.shares["b"] > 0.4 * UNITS


def test_an_unmeasured_environment_gets_as_much_as_one_that_always_teaches() -> None:
    curriculum = Curriculum({"a": 1, "b": 1, "c": 1}, AT_ONCE)
    change = curriculum.observe(1, a_step(1, {"a": TEACHES, "b": HOPELESS}))
    assert change is not None
    assert change.new_shares["c"] == pytest.approx(change.new_shares["a"], abs=1e-5)
    assert change.signals["c"] is None
    assert curriculum.metrics()["curriculum/b/signal"] == 0.0


def test_evidence_fades_with_the_steps_between_and_the_forgotten_is_tried_again() -> None:
    settings = CurriculumSpec(interval=1, min_change=0.0, half_life=2.0, floor=0.1)
    curriculum = Curriculum({"a": 1, "b": 1}, settings)
    curriculum.observe(1, a_step(1, {"a": TEACHES, "b": HOPELESS}))
    low = curriculum.shares["b"]
    curriculum.observe(9, a_step(9, {"a": TEACHES}))
    # Four half-lives: of 4 groups measured a quarter group is left, so hope is 1 / 1.25.
    expected = 0.1 / 2 + 0.9 * 0.8 / 1.8
    assert curriculum.shares["b"] == pytest.approx(expected * UNITS, abs=2)
    assert curriculum.shares["b"] > 2 * low


def test_a_task_drawn_twice_is_evidence_twice() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, AT_ONCE)
    curriculum.observe(1, [a_group("a", "a/1", HOPELESS), a_group("a", "a/1", SATURATED)])
    # Neither draw taught anything, though the task has failed and passed.
    assert curriculum.state()["evidence"] == {"a": [0.0, 2.0], "b": [0.0, 0.0]}


def test_several_waves_of_one_step_age_nothing() -> None:
    at_once, in_parts = Curriculum({"a": 1, "b": 1}, AT_ONCE), Curriculum({"a": 1, "b": 1}, AT_ONCE)
    first, second = a_step(3, {"a": TEACHES}), a_step(3, {"b": HOPELESS})
    at_once.observe(3, first + second)
    in_parts.observe(3, first)
    in_parts.observe(3, second)
    assert in_parts.state()["evidence"] == at_once.state()["evidence"]


def test_changes_are_limited_in_rate_and_small_ones_are_left_out() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, CurriculumSpec(interval=5))
    rows = {"a": TEACHES, "b": HOPELESS}
    changed = [step for step in range(1, 21) if curriculum.observe(step, a_step(step, rows))]
    assert changed == [5, 15]
    eager = Curriculum({"a": 1, "b": 1}, CurriculumSpec(interval=5, min_change=0.0))
    changed = [step for step in range(1, 21) if eager.observe(step, a_step(step, rows))]
    assert changed == [5, 10, 15, 20]
    never = Curriculum({"a": 1, "b": 1}, CurriculumSpec(interval=5, min_change=0.5))
    assert not any(never.observe(step, a_step(step, rows)) for step in range(1, 21))


@pytest.mark.parametrize("floor", [0.05, 0.3, 0.9])
def test_no_share_falls_below_the_floor(floor: float) -> None:
    settings = CurriculumSpec(interval=1, min_change=0.0, floor=floor)
    curriculum = Curriculum({"a": 6, "b": 3, "c": 1}, settings)
    for step in range(1, 100):
        curriculum.observe(step, a_step(step, {"a": TEACHES, "b": SATURATED, "c": HOPELESS}, 20))
    shares = curriculum.shares
    assert sum(shares.values()) == UNITS
    for env_key, base in {"a": 0.6, "b": 0.3, "c": 0.1}.items():
        assert shares[env_key] >= floor * base * UNITS - 1
    assert shares["a"] > 0.6 * UNITS


def simulate(
    pass_rate: Callable[[int, str], float], envs: list[str], *, steps: int, prompts: int
) -> tuple[list[dict[str, float]], list[Reweighting], list[list[int]]]:
    """Groups of 8 with fixed seeds; returns shares per step, changes, and prompts per step."""
    curriculum, rng = Curriculum(dict.fromkeys(envs, 1), CurriculumSpec()), random.Random(0)
    sizes = [10**6] * len(envs)
    drawn = Shares(list(curriculum.shares.values()), prompts=prompts, sizes=sizes, minimum=0)
    shares, changes, counts = [], [], []
    for step in range(1, steps + 1):
        counts.append(drawn.next_counts())
        groups = [
            a_group(
                env_key,
                f"{env_key}/{step}/{index}",
                [float(rng.random() < pass_rate(step, env_key)) for _ in range(8)],
            )
            for env_key, count in zip(envs, counts[-1], strict=True)
            for index in range(count)
        ]
        if change := curriculum.observe(step, groups):
            changes.append(change)
            drawn.reweight(list(curriculum.shares.values()))
        shares.append({key: share / UNITS for key, share in curriculum.shares.items()})
    return shares, changes, counts


def test_an_environment_that_becomes_learnable_is_found_and_one_that_saturates_is_left() -> None:
    rates = {"solved": 1.0, "hard": 0.0, "half": 0.5, "rare": 0.1, "late": 0.5}

    def pass_rate(step: int, env_key: str) -> float:
        if step > 60 and env_key in ("hard", "late"):
            return {"hard": 0.3, "late": 1.0}[env_key]
        return rates[env_key]

    shares, changes, counts = simulate(pass_rate, list(rates), steps=120, prompts=20)
    before, after = shares[59], shares[79]
    assert max(before["solved"], before["hard"]) < 0.08 < 0.2 < min(before["half"], before["late"])
    assert after["hard"] > 0.2, "within 20 steps of becoming learnable"
    assert shares[99]["late"] < 0.12 < 0.2 < shares[99]["half"]
    assert len(changes) <= 120 // 5
    assert all(sum(column[at : at + 10]) for column in zip(*counts, strict=True) for at in (0, 50))


def test_the_one_learnable_environment_of_many_is_found_with_few_prompts() -> None:
    envs = [f"env{index}" for index in range(25)]
    shares, _, counts = simulate(
        lambda step, env_key: 0.3 if step > 40 and env_key == "env7" else 0.0,
        envs,
        steps=100,
        prompts=10,
    )
    assert shares[39]["env7"] < 0.05
    assert shares[79]["env7"] > 0.12
    assert max(shares[79], key=lambda key: shares[79][key]) == "env7"
    assert all(sum(column[60:70]) for column in zip(*counts, strict=True)), "nobody starves"


def test_a_restored_curriculum_goes_on_exactly() -> None:
    envs = {"a": 3, "b": 2, "c": 1}
    curriculum, rng = Curriculum(envs, AT_ONCE), random.Random(3)
    for step in range(1, 30):
        rows = a_step(step, {key: [0.0, float(rng.random() < 0.5)] for key in envs}, 1)
        resumed = Curriculum(envs, AT_ONCE)
        resumed.restore(json.loads(json.dumps(curriculum.state())))
        assert resumed.observe(step, rows) == curriculum.observe(step, rows)
        assert resumed.state() == curriculum.state()


GOOD = Curriculum({"a": 1, "b": 1}, AT_ONCE).state()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        GOOD | {"step": "1"},
        GOOD | {"shares": {"a": UNITS}},
        GOOD | {"shares": {"a": UNITS, "b": 0}},
        GOOD | {"shares": {"a": UNITS, "b": 1}},
        GOOD | {"shares": [UNITS]},
        GOOD | {"evidence": [0.0, 0.0]},
        GOOD | {"evidence": {"a": [0.0, 0.0]}},
        GOOD | {"evidence": {"a": [0.0, 0.0], "b": [2.0, 1.0]}},
    ],
    ids=str,
)
def test_a_malformed_state_is_refused(state: JsonValue) -> None:
    with pytest.raises(CheckpointError, match="malformed"):
        Curriculum({"a": 1, "b": 1}, AT_ONCE).restore(state)


def test_the_least_share_is_restored() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, AT_ONCE)
    curriculum.restore(GOOD | {"shares": {"a": UNITS - 1, "b": 1}})
    assert curriculum.shares == {"a": UNITS - 1, "b": 1}


def test_whole_shares_sum_to_one_and_leave_nobody_out() -> None:
    shares = whole_shares({"tiny": 1e-12, "a": 1.0, "b": 2.0})
    assert shares["tiny"] == 1
    assert sum(shares.values()) == UNITS
    assert shares["b"] == pytest.approx(2 * shares["a"], abs=4)
    # 666,666 and 333,333: the larger one gets the millionth that is left.
    assert whole_shares({"a": 2.0, "b": 1.0}) == {"a": 666_667, "b": 333_333}


def test_a_curriculum_begins_before_the_first_step_and_counts_groups_of_one_rollout() -> None:
    curriculum = Curriculum({"a": 1, "b": 1}, AT_ONCE)
    assert curriculum.state()["step"] == 0
    curriculum.observe(1, [a_group("a", "a/1", [1.0])])
    assert curriculum.state()["evidence"] == {"a": [0.0, 1.0], "b": [0.0, 0.0]}


def test_a_change_of_the_least_size_is_made() -> None:
    rows = a_step(1, {"a": TEACHES, "b": HOPELESS})
    eager = Curriculum({"a": 1, "b": 1}, AT_ONCE)
    eager.observe(1, rows)
    least = (eager.shares["a"] - UNITS // 2) / UNITS
    assert least * UNITS == eager.shares["a"] - UNITS // 2
    settings = CurriculumSpec(interval=1, min_change=least)
    assert Curriculum({"a": 1, "b": 1}, settings).observe(1, rows) is not None
