"""Ranges of p and verdict over all pairings, against the enumeration of all pairings."""

from __future__ import annotations

from itertools import product

import pytest

from hillclimb.stats.paired import mcnemar_exact
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts.compare import ENVIRONMENTS_LEVEL, RULES, compare
from hillclimb.stats.verdicts.pairings import Pairing, judge_printed
from hillclimb.stats.verdicts.printed import PassCounts, lost_range
from hillclimb.stats.verdicts.verdict import Selection, Verdict
from tests.hillclimb.stats.verdicts.test_printed import row

SEEDS = [
    row("booking", "53.8%", "57.7%"),
    row("fira", "40.0%", "40.0%"),
    row("github", "46.7%", "70.0%"),
    row("hubspot", "100.0%", "100.0%"),
    row("outlook", "100.0%", "100.0%"),
    row("reddit", "66.7%", "66.7%"),
    row("ticketmaster", "3.6%", "7.1%"),
    row("zillow", "50.0%", "50.0%"),
]
"""The published table of the team, with the overall rates 43.1 and 50.9 %."""


def tasks(env_key: str, pairing: Pairing) -> tuple[list[TaskCount], list[TaskCount]]:
    """Return the tasks of a pairing before and after: lost, gained, passed, failed."""
    passed = pairing.counts.before - pairing.num_lost
    failed = pairing.counts.num_tasks - pairing.num_lost - pairing.num_gained - passed
    pairs = [(1, 0)] * pairing.num_lost + [(0, 1)] * pairing.num_gained
    pairs += [(1, 1)] * passed + [(0, 0)] * failed
    sides = ([], []) if not pairs else tuple(map(list, zip(*pairs, strict=True)))
    before, after = (
        [
            TaskCount(
                task_key=f"{env_key}.{at}", env_key=env_key, template="t",
                held_out_template=False, num_graded=1, num_passed=score, num_missing=0,
            )
            for at, score in enumerate(side)
        ]
        for side in sides
    )  # fmt: skip
    return before, after


def test_the_published_headline_by_hand() -> None:
    """7 gained and none lost: 2 / 2^7. 16 gained and 9 lost: 2 P(at most 9 of 25) = 0.2295."""
    (github,) = judge_printed([row("github", "14/30", "21/30")], max_tasks=30, rule="v1").rows
    assert github.num_lost == (0, 9)
    assert github.p_value == (2 / 2**7, pytest.approx(0.229523, abs=1e-6))
    assert github.p_adjusted is None
    assert github.verdicts == (Verdict.IMPROVED, Verdict.FLAT)


def test_the_published_table_has_its_numbers_of_tasks_and_ranges() -> None:
    table = judge_printed(SEEDS, row("all", "43.1%", "50.9%"), max_tasks=30)
    for each in (*table.rows, table.overall):
        assert each is not None
        for counts in each.counts:
            assert f"{100 * counts.before / counts.num_tasks:.1f}%" == each.before
            assert f"{100 * counts.after / counts.num_tasks:.1f}%" == each.after
    rows = {each.name: each for each in table.rows}
    assert rows["booking"].counts == (PassCounts(26, 14, 15),)
    assert rows["github"].counts == (PassCounts(30, 14, 21),)
    assert rows["ticketmaster"].counts == (PassCounts(28, 1, 2),)
    assert rows["github"].p_value == (0.015625, pytest.approx(0.229523, abs=1e-6))
    assert rows["github"].p_adjusted == (0.125, 1.0), "one of eight environments"
    assert rows["github"].verdicts == (Verdict.INCONCLUSIVE,)
    assert rows["hubspot"].verdicts == (Verdict.INCONCLUSIVE, Verdict.SATURATED)
    assert table.overall is not None
    assert table.overall.counts == (PassCounts(116, 50, 59),)
    assert table.overall.num_lost == (0, 31)
    assert table.overall.p_value == (2 / 2**9, pytest.approx(mcnemar_exact(40, 31)))
    assert table.overall.verdicts == (Verdict.IMPROVED, Verdict.FLAT)


@pytest.mark.parametrize("rule", ["v1", "v2"])
@pytest.mark.parametrize(
    "counts",
    [
        {"a": PassCounts(12, 3, 10), "b": PassCounts(11, 9, 2)},
        {"a": PassCounts(10, 9, 10), "b": PassCounts(14, 1, 9)},
        {"a": PassCounts(9, 1, 8), "b": PassCounts(20, 1, 1)},
    ],
)
def test_the_ranges_are_those_of_all_pairings(rule: str, counts: dict[str, PassCounts]) -> None:
    table = judge_printed(
        [
            row(name, f"{each.before}/{each.num_tasks}", f"{each.after}/{each.num_tasks}")
            for name, each in counts.items()
        ],
        max_tasks=30,
        rule=rule,
    )
    judged = []
    for lost in product(*(range(low, high + 1) for low, high in map(lost_range, counts.values()))):
        sides = [
            tasks(name, Pairing(each, number))
            for (name, each), number in zip(counts.items(), lost, strict=True)
        ]
        before, after = (
            [task for side in which for task in side] for which in zip(*sides, strict=True)
        )
        judged.append(compare(before, after, rule=rule))
    assert len(judged) > 1
    assert table.overall is not None
    samples = [(each, [found.by_env[each.name] for found in judged]) for each in table.rows]
    for each, all_found in [*samples, (table.overall, [found.overall for found in judged])]:
        values = [found.p_value for found in all_found if found.p_value is not None]
        assert each.p_value == pytest.approx((min(values), max(values)))
        adjusted = [found.p_adjusted for found in all_found if found.p_adjusted is not None]
        assert each.p_adjusted == (
            pytest.approx((min(adjusted), max(adjusted))) if adjusted else None
        )
        assert set(each.verdicts) == {found.verdict for found in all_found}


@pytest.mark.parametrize("rule", ["v1", "v2"])
@pytest.mark.parametrize(
    ("before", "after", "max_tasks"),
    [
        ("40%", "60%", 30),
        ("50%", "50%", 10),
        ("80%", "20%", 10),
        ("15%", "5%", 80),
        ("90%", "98%", 80),
        ("60%", "40%", 40),
        ("90%", "90%", 41),
        ("90%", "95%", 41),
        ("95%", "90%", 41),
        ("10%", "5%", 60),
        ("0%", "80%", 15),
        ("10%", "30%", 10),
        ("80%", "100%", 15),
    ],
)
def test_a_row_of_unknown_size_has_the_words_of_all_its_sizes_and_pairings(
    rule: str, before: str, after: str, max_tasks: int
) -> None:
    printed_row = row("a", before, after)
    (found,) = judge_printed([printed_row], max_tasks=max_tasks, rule=rule).rows
    pairings = [
        Pairing(counts, num_lost)
        for counts in printed_row.counts(range(1, max_tasks + 1))
        for num_lost in range(lost_range(counts)[0], lost_range(counts)[1] + 1)
    ]
    pairings.sort(key=lambda pairing: pairing.p_value)
    judged = [
        RULES[rule].judge({"a": each.sample()}, Selection(), level=ENVIRONMENTS_LEVEL)["a"]
        for each in pairings
    ]
    p_values = [each.p_value for each in pairings]
    assert found.p_value == (min(p_values), max(p_values))
    assert set(found.verdicts) == {each.verdict for each in judged}
    ends = [each.p_adjusted for each in (judged[0], judged[-1]) if each.p_adjusted is not None]
    assert found.p_adjusted == ((min(ends), max(ends)) if rule == "v2" else None)
    lost = [each.num_lost for each in pairings]
    assert found.num_lost == (min(lost), max(lost))


def test_counts_of_all_rows_have_an_overall_line_that_nobody_printed() -> None:
    table = judge_printed([row("a", "1/2", "2/2"), row("b", "3/4", "1/4")], max_tasks=30, rule="v1")
    assert table.rule == "v1"
    assert table.overall is not None
    assert (table.overall.name, table.overall.before, table.overall.after) == ("all", "", "")


def test_words_that_depend_on_the_number_of_tasks_are_all_named() -> None:
    """90 % is saturated from exactly 0.9 on: 89.96 % and less is not."""
    (each,) = judge_printed([row("a", "90%", "90%")], max_tasks=300).rows
    assert set(each.verdicts) == {Verdict.SATURATED, Verdict.FLAT}
    (few,) = judge_printed([row("a", "0%", "100%")], max_tasks=12).rows
    assert few.verdicts == (Verdict.IMPROVED, Verdict.INCONCLUSIVE)


def test_overall_rates_of_other_tasks_have_no_verdict() -> None:
    table = judge_printed([row("a", "1/10", "9/10")], row("all", "50%", "60%"), max_tasks=30)
    assert table.overall is not None
    assert (table.overall.counts, table.overall.verdicts) == ((), ())
    assert (table.overall.p_value, table.overall.num_lost) == (None, None)
    assert table.rows[0].verdicts == (Verdict.IMPROVED,)


def test_a_table_without_overall_rates_and_numbers_has_none_overall() -> None:
    assert judge_printed([row("a", "50%", "50%")], max_tasks=30).overall is None
    with pytest.raises(KeyError):
        judge_printed([row("a", "50%", "50%")], max_tasks=30, rule="v0")
