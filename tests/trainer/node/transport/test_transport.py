"""Two ways to the service: what the first one says, and what becomes of it through the second."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from trainer.contract.launch import Action, AttemptEnd, NodePlan
from trainer.contract.reasons import ReasonCode
from trainer.node.errors import ServiceUnreachable, TokenUnknown
from trainer.node.service import DISOWNED_S, TwoWays

END = AttemptEnd(reason=ReasonCode.COMPLETED, message="done")


@dataclass(slots=True)
class Says:
    """A service that gives these answers to beats, one after the other, and the last for ever."""

    answers: list[Action | Exception | None]
    ends: list[AttemptEnd] = field(default_factory=list)
    num_beats: int = 0

    def exchange(self, nonce: str) -> NodePlan:
        raise NotImplementedError

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        self.num_beats += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def report_end(self, end: AttemptEnd) -> None:
        if isinstance(self.answers[0], Exception):
            raise self.answers[0]
        self.ends.append(end)


class Clock:
    """What the ways take for the time."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("trainer.node.service.time", clock)
    return clock


def test_a_token_that_is_unknown_for_a_while_leaves_the_trainer_alone(clock: Clock) -> None:
    unknown = TokenUnknown("who?")
    second = Says([None])
    ways = TwoWays(first=Says([unknown, unknown, unknown, None, unknown, None]), second=second)
    for _ in range(6):
        assert ways.heartbeat(is_preparing=False) is None
        clock.now += DISOWNED_S / 2 - 1
    assert second.num_beats == 4, "the service reads what is said there"


@pytest.mark.parametrize("second", [None, ServiceUnreachable("no store")])
def test_a_token_that_nobody_knows_for_long_stops_the_trainer(
    clock: Clock, second: Exception | None
) -> None:
    ways = TwoWays(first=Says([TokenUnknown("who?")]), second=Says([None]))
    assert ways.heartbeat(is_preparing=False) is None
    clock.now += DISOWNED_S
    ways.second = Says([second])
    assert ways.heartbeat(is_preparing=False) == "stop"
    ways.second = Says(["kill"])
    assert ways.heartbeat(is_preparing=False) == "kill"


def test_no_answer_at_all_stops_nobody(clock: Clock) -> None:
    unknown, away = TokenUnknown("who?"), ServiceUnreachable("refused")
    ways = TwoWays(first=Says([unknown, away, away, unknown, unknown]), second=Says([None]))
    for _ in range(4):
        assert ways.heartbeat(is_preparing=False) is None
        clock.now += DISOWNED_S


def test_the_end_is_told_through_the_store_where_the_token_is_unknown() -> None:
    second = Says([None])
    TwoWays(first=Says([TokenUnknown("who?")]), second=second).report_end(END)
    assert second.ends == [END]
