"""What events say about their outcomes, and how failures are named."""

from __future__ import annotations

import pytest

from api.results.evals.failures import MEANINGS, cause_of, failure_table
from api.results.evals.store import FailureGroup
from api.results.evals.summary import summarise
from hillclimb.protocol.outcomes import StopReason
from tests.api.fixtures.story import rollout


def test_a_summary_leaves_missing_grades_out_of_the_rate_and_in_the_bounds() -> None:
    rows = [rollout("booking", i, passed=i < 6) for i in range(8)]
    rows += [rollout("booking", i, passed=None) for i in (8, 9)]
    facts = summarise(rows, pass_threshold=1.0)
    booking = facts["envs"]["booking"]
    assert (booking["n"], booking["passes"], booking["pass_at_1"]) == (8, 6, 0.75)
    assert booking["coverage"] == 0.8
    assert (booking["bound_if_failed"], booking["bound_if_passed"]) == (0.6, 0.8)
    assert booking["low"] < 0.75 < booking["high"]
    assert facts["all"] == booking
    assert facts["stop_reasons"] == {"done": 8, "infra_error": 2}
    assert facts["num_outcomes"] == 10


def test_a_summary_of_nothing_has_no_rate() -> None:
    facts = summarise([], pass_threshold=1.0)
    assert facts["all"]["pass_at_1"] is None
    assert facts["envs"] == {}


def test_the_threshold_decides_what_passes() -> None:
    row = rollout("booking", 0, passed=True).model_copy(update={"score": 0.6})
    assert summarise([row], pass_threshold=0.5)["all"]["passes"] == 1
    assert summarise([row], pass_threshold=0.7)["all"]["passes"] == 0


@pytest.mark.parametrize("stop", list(StopReason))
def test_every_way_to_stop_has_a_cause_with_a_meaning(stop: StopReason) -> None:
    for repeated in (False, True):
        assert cause_of(stop.value, has_repeated_calls=repeated) in MEANINGS


def test_repetition_is_the_cause_only_at_the_turn_limit() -> None:
    assert cause_of("max_turns", has_repeated_calls=True) == "repeated_calls"
    assert cause_of("max_turns", has_repeated_calls=False) == "no_done"
    assert cause_of("done", has_repeated_calls=True) == "wrong_state"


def test_the_most_frequent_cause_before_comes_first() -> None:
    def group(stop: str, count: int) -> FailureGroup:
        return FailureGroup(env_key="e", stop_reason=stop, has_repeated_calls=False, count=count)

    table = failure_table([group("done", 2), group("max_turns", 9)], [group("done", 5)])
    assert list(table) == ["no_done", "wrong_state"]
    assert (table["no_done"]["before"], table["no_done"]["after"]) == (9, 0)
