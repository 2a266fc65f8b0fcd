"""Two ways to the service: what the first one says, and what becomes of it through the second."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import Action, EndReport, NodePlan
from trainer.node.errors import ServiceUnreachable, TokenUnknown
from trainer.node.transport.transport import DISOWNED_S, FallbackTransport

END = EndReport(reason=ReasonCode.COMPLETED, message="done")


@dataclass(slots=True)
class Says:
    """A service that gives these answers to beats, one after the other, and the last for ever."""

    answers: list[Action | Exception | None]
    ends: list[EndReport] = field(default_factory=list)
    num_beats: int = 0

    def claim(self, nonce: str) -> NodePlan:
        raise NotImplementedError

    def heartbeat(self, *, is_preparing: bool) -> Action | None:
        self.num_beats += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def report_end(self, end: EndReport) -> None:
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
    monkeypatch.setattr("trainer.node.transport.transport.time", clock)
    return clock


def test_a_token_that_is_unknown_for_a_while_leaves_the_trainer_alone(clock: Clock) -> None:
    unknown = TokenUnknown("who?")
    second = Says([None])
    transports = FallbackTransport(
        primary=Says([unknown, unknown, unknown, None, unknown, None]), fallback=second
    )
    for _ in range(6):
        assert transports.heartbeat(is_preparing=False) is None
        clock.now += DISOWNED_S / 2 - 1
    assert second.num_beats == 4, "the service reads what is said there"


@pytest.mark.parametrize("second", [None, ServiceUnreachable("no store")])
def test_a_token_that_nobody_knows_for_long_stops_the_trainer(
    clock: Clock, second: Exception | None
) -> None:
    transports = FallbackTransport(primary=Says([TokenUnknown("who?")]), fallback=Says([None]))
    assert transports.heartbeat(is_preparing=False) is None
    clock.now += DISOWNED_S
    transports.fallback = Says([second])
    assert transports.heartbeat(is_preparing=False) == "stop"
    transports.fallback = Says(["kill"])
    assert transports.heartbeat(is_preparing=False) == "kill"


def test_no_answer_at_all_stops_nobody(clock: Clock) -> None:
    unknown, away = TokenUnknown("who?"), ServiceUnreachable("refused")
    transports = FallbackTransport(
        primary=Says([unknown, away, away, unknown, unknown]), fallback=Says([None])
    )
    for _ in range(4):
        assert transports.heartbeat(is_preparing=False) is None
        clock.now += DISOWNED_S


def test_the_end_is_told_through_the_store_where_the_token_is_unknown() -> None:
    second = Says([None])
    FallbackTransport(primary=Says([TokenUnknown("who?")]), fallback=second).report_end(END)
    assert second.ends == [END]
