"""How long a gang's other node stays: as long as the first may be there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from trainer.node.member import EXIT_DONE, HEAD_TIMEOUT_S, Member
from trainer.node.ray_process import RayProcess
from trainer.node.settings import NodeSettings

GAP_S = 60.0
"""A switch that fails over, a virtual machine that moves."""


@dataclass(slots=True)
class Clock:
    """What the member takes for the time."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass(slots=True)
class ScriptedRay:
    """The first node's Ray: silent between two moments, refusing from a third on."""

    clock: Clock
    silent_from: float
    silent_until: float
    refuses_from: float
    address: str = "10.0.0.1:6400"
    said: str = ""

    def start(self) -> None:
        """Join."""

    def is_running(self) -> bool:
        return True

    def is_head_up(self) -> bool:
        now = self.clock.now
        return not self.silent_from <= now < self.silent_until and not self.is_head_refusing()

    def is_head_refusing(self) -> bool:
        return self.clock.now >= self.refuses_from


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("trainer.node.member.time", clock)
    return clock


@pytest.fixture
def member(tmp_path: Path) -> Member:
    told = {
        "HILLCLIMB_BLOBS_URL": str(tmp_path / "blobs"),
        "HILLCLIMB_RUN_ID": "run_1",
        "HILLCLIMB_ATTEMPT": "1",
        "HILLCLIMB_ATTEMPT_ID": "att_1",
        "HILLCLIMB_NODE_HOME": str(tmp_path / "home"),
    }
    return Member(
        settings=NodeSettings.from_environment(told),
        environ={},
        key=b"key",
        service=None,
        set_redactor=lambda _mask: None,
        delete_secrets=lambda: None,
    )


def stays(member: Member, clock: Clock, ray: ScriptedRay) -> float:
    """Return for how long it stayed (seconds)."""
    joined = clock.now
    assert member._join(cast("RayProcess", ray), joined + 60.0) == EXIT_DONE
    return clock.now - joined


def test_a_gap_in_the_network_does_not_end_the_ranks_of_a_machine(
    member: Member, clock: Clock
) -> None:
    begins = clock.now + 30.0
    ray = ScriptedRay(clock, begins, begins + GAP_S, refuses_from=begins + 10 * GAP_S)
    assert stays(member, clock, ray) == pytest.approx(30.0 + 10 * GAP_S, abs=5.0)


def test_a_head_that_is_silent_for_good_is_gone(member: Member, clock: Clock) -> None:
    ray = ScriptedRay(clock, clock.now + 30.0, float("inf"), refuses_from=float("inf"))
    assert stays(member, clock, ray) == pytest.approx(30.0 + HEAD_TIMEOUT_S, abs=5.0)
