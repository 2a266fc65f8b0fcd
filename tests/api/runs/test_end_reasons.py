"""The table of end reasons is total, and its statuses can be reached."""

import itertools

import pytest

from api.runs.deadlines import DEADLINES_S
from api.runs.end_reasons import (
    FINAL,
    MAX_FAILURES,
    OVERDUE,
    REASONS,
    AfterEnd,
    Category,
    FailureCounting,
    end_reason,
    status_after,
)
from api.runs.status import RunStatus, may_follow
from hillclimb.protocol.end_reasons import ReasonCode


def test_every_reason_has_facts_and_every_consequence_a_status() -> None:
    assert set(REASONS) == set(ReasonCode)
    assert set(FINAL) == set(AfterEnd)
    assert all(facts.wording.endswith(".") for facts in REASONS.values())
    assert {facts.category for facts in REASONS.values()} == set(Category)


def test_every_deadline_has_the_reason_that_ends_the_attempt() -> None:
    assert {status for status, seconds in DEADLINES_S.items() if seconds} == set(OVERDUE)


@pytest.mark.parametrize(
    ("reason", "num_failures"), list(itertools.product(sorted(ReasonCode), range(MAX_FAILURES + 1)))
)
def test_a_running_run_can_go_where_any_reason_sends_it(
    reason: ReasonCode, num_failures: int
) -> None:
    to = status_after(reason, num_failures=num_failures)
    via = RunStatus.FINALIZING if to is RunStatus.SUCCEEDED else RunStatus.RUNNING
    assert may_follow(via, to)


def test_only_real_failures_use_up_the_tries() -> None:
    free = {code for code, facts in REASONS.items() if facts.counts is FailureCounting.NEVER}
    assert {ReasonCode.RUNNER_STOPPED, ReasonCode.NO_RUNNER} < free
    for code in set(ReasonCode) - free:
        assert status_after(code, num_failures=MAX_FAILURES - 1) is RunStatus.RECOVERING
        assert status_after(code, num_failures=MAX_FAILURES) is FINAL[REASONS[code].when_exhausted]
    for code in free:
        assert status_after(code, num_failures=MAX_FAILURES) is FINAL[REASONS[code].after]


def test_an_end_reason_keeps_the_message_and_falls_back_on_the_wording() -> None:
    assert end_reason("trainer_crashed", "signal 9")["message"] == "signal 9"
    assert end_reason("trainer_crashed", None) == {
        "code": "trainer_crashed",
        "category": Category.INFRA,
        "retryable": True,
        "message": "The trainer crashed.",
    }
