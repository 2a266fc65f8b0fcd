"""The numbers of tasks and passes that printed rates stand for."""

from __future__ import annotations

from itertools import product

import pytest

from hillclimb.stats.verdicts import printed
from hillclimb.stats.verdicts.printed import (
    PassCounts,
    PrintedRate,
    PrintedRow,
    PrintedTableError,
    lost_range,
    possible_counts,
)


def row(name: str, before: str, after: str, num_tasks: int | None = None) -> PrintedRow:
    return PrintedRow(
        name=name,
        before=PrintedRate.parse(before),
        after=PrintedRate.parse(after),
        num_tasks=num_tasks,
    )


def test_a_share_stands_for_all_that_round_to_it() -> None:
    assert list(PrintedRate.parse("46.7%").passes(30)) == [14]
    assert list(PrintedRate.parse("46.7%").passes(15)) == [7]
    assert list(PrintedRate.parse("46.7%").passes(29)) == []
    assert list(PrintedRate.parse("47%").passes(200)) == [93, 94, 95], "halves either way"
    assert list(PrintedRate.parse("46.67%").passes(100_000)) == list(range(46_665, 46_676))
    assert list(PrintedRate.parse("0%").passes(100)) == [0]
    assert list(PrintedRate.parse("0%").passes(200)) == [0, 1]
    assert list(PrintedRate.parse("100.0%").passes(5)) == [5]
    assert list(PrintedRate.parse("146.7%").passes(30)) == []


def test_a_count_stands_for_itself() -> None:
    rate = PrintedRate.parse("14/30")
    assert (list(rate.passes(30)), list(rate.passes(15)), rate.of) == ([14], [], 30)
    assert rate.text == "14/30"
    assert list(PrintedRate.parse("0/5").passes(5)) == [0]


@pytest.mark.parametrize("text", ["", "46.7", "-1%", "4 %", "1e3%", "3/", "4/3", "0/0", "٣%"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(PrintedTableError, match=r"is neither a share|are not passes of tasks"):
        PrintedRate.parse(text)


def test_both_rates_together_name_the_number_of_tasks() -> None:
    """46.7 % is 7 of 15 or 14 of 30, and 70.0 % of 10, 20 or 30."""
    assert row("github", "46.7%", "70.0%").counts(range(1, 31)) == [PassCounts(30, 14, 21)]
    assert row("github", "14/30", "70.0%").counts(range(1, 3)) == [PassCounts(30, 14, 21)]
    assert row("github", "46.7%", "70.0%", 60).counts(range(1, 31)) == [PassCounts(60, 28, 42)]


@pytest.mark.parametrize(
    ("printed_row", "message"),
    [
        (row("github", "46.7%", "70.1%"), "no number of tasks up to 30 gives both 46.7% and 70.1%"),
        (row("github", "14/30", "21/31"), "30 tasks do not give both 14/30 and 21/31"),
        (row("github", "46.7%", "70.0%", 29), "29 tasks do not give both 46.7% and 70.0%"),
    ],
)
def test_rates_that_no_tasks_have_are_refused(printed_row: PrintedRow, message: str) -> None:
    with pytest.raises(PrintedTableError, match=f"github: {message}"):
        printed_row.counts(range(1, 31))


def test_as_many_tasks_are_lost_as_the_counts_allow() -> None:
    assert lost_range(PassCounts(30, 14, 21)) == (0, 9), "nine fail after at most"
    assert lost_range(PassCounts(30, 21, 14)) == (7, 16)
    assert lost_range(PassCounts(30, 0, 30)) == (0, 0)


def test_the_overall_rate_narrows_the_rows() -> None:
    """Of 1/2, 2/4 and 3/6, only two tasks make 3/12 with 2 of 10: 16.7 % would be 2 of 12."""
    rows = [row("a", "50%", "50%"), row("b", "2/10", "5/10")]
    alone = possible_counts(rows, None, max_tasks=6)
    assert alone.rows["a"] == (PassCounts(2, 1, 1), PassCounts(4, 2, 2), PassCounts(6, 3, 3))
    assert alone.totals == (), "nothing says how many tasks there are"
    assert possible_counts(rows, None, max_tasks=4).totals == (), "two or four of them"
    narrowed = possible_counts(rows, row("all", "25.0%", "50.0%"), max_tasks=6)
    assert narrowed.rows == {"a": (PassCounts(2, 1, 1),), "b": (PassCounts(10, 2, 5),)}
    (total,) = narrowed.totals
    assert total.counts == PassCounts(12, 3, 6)
    assert (total.fewest_lost, total.most_lost) == (0, 3)
    assert possible_counts(rows, row("all", "25.0%", "50.0%", 13), max_tasks=6).totals == ()


def test_an_overall_rate_of_other_tasks_narrows_nothing() -> None:
    rows = [row("a", "50%", "50%"), row("b", "2/10", "5/10")]
    counts = possible_counts(rows, row("all", "90%", "95%"), max_tasks=6)
    assert len(counts.rows["a"]) == 3
    assert counts.totals == ()


def test_rows_of_known_numbers_have_a_sum() -> None:
    counts = possible_counts([row("a", "1/2", "2/2"), row("b", "3/4", "1/4")], None, max_tasks=30)
    (total,) = counts.totals
    assert total.counts == PassCounts(6, 4, 3)
    assert (total.fewest_lost, total.most_lost) == (2, 3)


def test_the_narrowed_counts_are_those_of_the_enumeration_of_all_tables() -> None:
    rows = [row("a", "50%", "50%"), row("b", "33%", "67%"), row("c", "100%", "100%")]
    overall = row("all", "55%", "64%")
    options = [each.counts(range(1, 10)) for each in rows]
    tables = [
        table
        for table in product(*options)
        if sum(c.before for c in table) in overall.before.passes(sum(c.num_tasks for c in table))
        and sum(c.after for c in table) in overall.after.passes(sum(c.num_tasks for c in table))
    ]
    narrowed = possible_counts(rows, overall, max_tasks=9)
    assert 0 < len(tables) < len(list(product(*options)))
    for place, name in enumerate("abc"):
        assert set(narrowed.rows[name]) == {table[place] for table in tables}
    for total in narrowed.totals:
        lost = [
            [lost_range(counts) for counts in table]
            for table in tables
            if sum(c.num_tasks for c in table) == total.counts.num_tasks
            and sum(c.before for c in table) == total.counts.before
            and sum(c.after for c in table) == total.counts.after
        ]
        assert total.fewest_lost == min(sum(low for low, _ in each) for each in lost)
        assert total.most_lost == max(sum(high for _, high in each) for each in lost)


def test_too_many_sums_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of three counts is added first, then that of six to each."""
    rows = [row("b", "50%", "50%"), row("a", "100%", "100%")]
    monkeypatch.setattr(printed, "MAX_SUMS", 3 + 3 * 6)
    assert possible_counts(rows, row("all", "80%", "80%"), max_tasks=6).totals
    monkeypatch.setattr(printed, "MAX_SUMS", 3 + 3 * 6 - 1)
    with pytest.raises(PrintedTableError, match="too many numbers of tasks"):
        possible_counts(rows, row("all", "80%", "80%"), max_tasks=6)
