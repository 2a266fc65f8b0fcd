"""Verdicts on evaluations that go on: what is decided, after which task, and what is foreseen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.stats.pass_rate import TaskCount, count_tasks
from hillclimb.stats.verdicts.compare import compare, shared_tasks
from hillclimb.stats.verdicts.sequential import Decision, SequentialComparison
from hillclimb.stats.verdicts.verdict import Selection, Verdict
from tests.hillclimb.stats.test_pass_rate import row, rows

Scores = Sequence[float | None]


def counts(scores: Scores) -> tuple[TaskCount, ...]:
    return count_tasks(rows(scores), pass_threshold=1.0)


def planned(number: int) -> list[tuple[str, str]]:
    return [("booking", f"t{i:03d}") for i in range(number)]


def a_comparison(
    before: Scores, *, num_candidates: int = 1, futility: float | None = None
) -> SequentialComparison:
    return SequentialComparison(
        counts(before), planned(len(before)), num_candidates=num_candidates, futility=futility
    )


def evaluate(comparison: SequentialComparison, after: Scores) -> Decision | None:
    """Add tasks in order until the comparison has enough."""
    for index, count in enumerate(counts(after)):
        if comparison.decision is None:
            comparison.add(index, count)
    return comparison.decision


def test_gains_alone_decide_after_the_fewest_tasks_that_a_verdict_needs() -> None:
    """The e-value of eight gains is 43.5, above 40, but nine tasks are too few."""
    decision = evaluate(a_comparison([0.0] * 40), [1.0] * 40)
    assert decision == Decision(cause="decided", verdict=Verdict.IMPROVED, num_tasks=10)
    losses = evaluate(a_comparison([1.0] * 40), [0.0] * 40)
    assert losses == Decision(cause="decided", verdict=Verdict.REGRESSED, num_tasks=10)


def test_a_choice_from_ten_evaluations_needs_ten_times_the_evidence() -> None:
    """400: eleven gains have 224, twelve 393, thirteen 697."""
    decision = evaluate(a_comparison([0.0] * 40, num_candidates=10), [1.0] * 40)
    assert decision is not None
    assert decision.num_tasks == 13


def test_a_complete_evaluation_did_not_end_early() -> None:
    assert evaluate(a_comparison([0.0] * 10), [1.0] * 10) is None


def test_tasks_that_the_earlier_evaluation_lacks_decide_nothing() -> None:
    comparison = SequentialComparison(counts([0.0] * 9), planned(30))
    assert evaluate(comparison, [1.0] * 29) is None


def test_a_saturated_sample_is_not_improved_however_sure_the_gain() -> None:
    before = [1.0] * 100 + [0.0] * 10 + [1.0] * 10
    assert evaluate(a_comparison(before), [1.0] * 119) is None


@pytest.mark.parametrize(
    ("before", "after"), [([0.0, 1.0], [1.0, None]), ([0.0, None], [1.0, 0.0])]
)
def test_missing_outcomes_that_could_change_the_word_prevent_a_decision(
    before: list[float | None], after: list[float | None]
) -> None:
    """Every second task gained; the others could all have been lost."""
    assert evaluate(a_comparison(before * 30), (after * 30)[:59]) is None
    harmless = evaluate(a_comparison([0.0, None] * 30), [1.0] * 59)
    assert harmless == Decision(cause="decided", verdict=Verdict.IMPROVED, num_tasks=15)


def test_several_rollouts_per_task_count_with_their_share() -> None:
    """The e-value of fourteen gains of one half is 42.6, of thirteen 31.4."""
    old = [row(f"t{i:03d}", 0.0, sample=s) for i in range(40) for s in range(2)]
    comparison = SequentialComparison(count_tasks(old, pass_threshold=1.0), planned(40))
    new = [row(f"t{i:03d}", float(s), sample=s) for i in range(40) for s in range(2)]
    for index, count in enumerate(count_tasks(new, pass_threshold=1.0)):
        comparison.add(index, count)
    assert comparison.decision is not None
    assert (comparison.decision.verdict, comparison.decision.num_tasks) == (Verdict.IMPROVED, 14)


outcome = st.sampled_from([0.0, 0.0, 1.0, 1.0, 1.0, None])
graded = st.sampled_from([0.0, 1.0, 1.0, 1.0])


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.0, 1.0]), graded), min_size=12, max_size=60))
def test_the_decision_is_the_first_word_that_a_look_at_each_beginning_gives(
    outcomes: list[tuple[float, float]],
) -> None:
    before, after = [b for b, _ in outcomes], [a for _, a in outcomes]
    looks = (
        (end, compare(counts(before[:end]), counts(after[:end]), selection=LOOK).overall.verdict)
        for end in range(1, len(after))
    )
    expected = next(
        (look for look in looks if look[1] in (Verdict.IMPROVED, Verdict.REGRESSED)), None
    )
    decision = evaluate(a_comparison(before), after)
    assert (decision and (decision.num_tasks, decision.verdict)) == expected


LOOK = Selection(is_complete=False)


@given(
    st.lists(st.tuples(outcome, outcome), min_size=12, max_size=50),
    st.randoms(use_true_random=False),
    st.sampled_from([None, 0.3]),
)
def test_the_order_of_completion_changes_nothing(
    outcomes: list[tuple[float | None, float | None]], drawing: object, futility: float | None
) -> None:
    before, after = [b for b, _ in outcomes], [a for _, a in outcomes]
    in_order = a_comparison(before, futility=futility)
    mixed = a_comparison(before, futility=futility)
    tasks = list(enumerate(counts(after)))
    for index, count in tasks:
        in_order.add(index, count)
    drawing.shuffle(tasks)  # type: ignore[attr-defined]
    for index, count in tasks:
        mixed.add(index, count)
    assert mixed.decision == in_order.decision


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0]), graded), min_size=20, max_size=60),
    st.sets(st.integers(0, 40), max_size=12),
    st.integers(1, 59),
)
def test_what_is_foreseen_is_decided_however_the_tasks_in_flight_end(
    outcomes: list[tuple[float, float]], in_flight: set[int], num_begun: int
) -> None:
    num_begun = min(num_begun, len(outcomes) - 1)
    before = [b for b, _ in outcomes]
    comparison = a_comparison(before)
    after = counts([a for _, a in outcomes])
    for index in range(num_begun):
        if index not in in_flight:
            comparison.add(index, after[index])
    if comparison.decision is not None or not comparison.is_foreseeable(num_begun):
        return
    assert in_flight, "a decision is foreseen only while a task is in flight"
    for worst in (0.0, 1.0):
        ended = a_comparison(before)
        for index in range(num_begun):
            score = worst if index in in_flight else outcomes[index][1]
            ended.add(index, counts([0.0] * index + [score])[index])
        assert ended.decision is not None or index < 10


def test_a_decision_is_foreseen_behind_a_task_that_takes_long() -> None:
    """All but the first have gained, and that one had failed before: it cannot be lost."""
    comparison = a_comparison([0.0] + [0.0] * 40)
    later = counts([0.0] + [1.0] * 40)
    assert not comparison.is_foreseeable(20)
    for index in range(1, 14):
        comparison.add(index, later[index])
    assert comparison.decision is None
    assert comparison.is_foreseeable(14)
    assert not comparison.is_foreseeable(1)


UNCHANGED, GAINED, LOST = (0.0, 0.0), (0.0, 1.0), (1.0, 0.0)
FAILED, PASSED = (0.0, None), (1.0, None)  # before, and in flight now


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(
    ("tasks", "is_certain"),
    [
        # The e-value of eight gains is 43.5, above 40, and of seven 25.7.
        ([FAILED] + [GAINED] * 8, True),
        ([FAILED] + [GAINED] * 7, False),
        # If the task in flight is lost: 54.1 with eleven gains, 32.8 with ten.
        ([PASSED] + [GAINED] * 11, True),
        ([PASSED] + [GAINED] * 10, False),
        # What is complete counts too: fewer than ten tasks decide nothing by themselves.
        ([GAINED] * 7 + [FAILED, GAINED], True),
        ([GAINED] * 7 + [FAILED, UNCHANGED], False),
        ([LOST] + [GAINED] * 5 + [FAILED] + [GAINED] * 6, True),
        ([LOST] + [GAINED] * 5 + [FAILED] + [GAINED] * 5, False),
        # Up to the best place, whatever comes after it.
        ([FAILED] + [GAINED] * 8 + [LOST, UNCHANGED, UNCHANGED], True),
        ([FAILED] + [GAINED] * 8 + [LOST, GAINED], True),
        ([FAILED] + [GAINED] * 4 + [LOST] + [GAINED] * 4, False),
    ],
)
def test_a_gain_or_a_loss_is_foreseen_where_the_worst_end_leaves_evidence(
    tasks: list[tuple[float, float | None]], is_certain: bool, is_turned: bool
) -> None:
    if is_turned:
        tasks = [(1.0 - old, None if new is None else 1.0 - new) for old, new in tasks]
    comparison = a_comparison([old for old, _ in tasks] + [0.0] * 20)
    for index, count in enumerate(counts([new for _, new in tasks])):
        if count.num_graded:
            comparison.add(index, count)
    assert comparison.decision is None
    assert comparison.is_foreseeable(len(tasks)) is is_certain


@pytest.mark.parametrize("futility", [None, 0.1])
def test_an_evaluation_without_direction_ends_as_futile_only_where_that_is_wanted(
    futility: float | None,
) -> None:
    before, after = [0.0, 1.0, 0.0, 0.0, 0.0] * 20, [1.0, 0.0, 0.0, 0.0, 0.0] * 20
    decision = evaluate(a_comparison(before, futility=futility), after)
    if futility is None:
        assert decision is None
    else:
        assert decision is not None
        assert (decision.cause, decision.verdict) == ("futile", Verdict.FLAT)
        assert 30 <= decision.num_tasks < 100


def test_the_word_of_a_futile_choice_from_ten_is_that_of_a_choice_from_ten() -> None:
    """Seven gained alone: p = 0.016 for a single evaluation, which would be enough."""
    comparison = a_comparison([0.0] * 36, num_candidates=10, futility=0.5)
    decision = evaluate(comparison, [1.0] * 7 + [0.0] * 29)
    assert decision is not None
    assert (decision.cause, decision.verdict) == ("futile", Verdict.INCONCLUSIVE)


def test_the_tasks_of_both_evaluations_are_shared() -> None:
    before, after = counts([0.0, 0.0, 0.0])[:2], counts([1.0, 1.0, 1.0])[1:]
    old, new = shared_tasks(before, after)
    assert [count.task_key for count in old] == [count.task_key for count in new] == ["t001"]
    assert (old[0].num_passed, new[0].num_passed) == (0, 1)
