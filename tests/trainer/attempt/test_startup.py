"""Phases of a start: each is an event when it begins and, with its time, when it ends."""

from __future__ import annotations

import pytest

from hillclimb.protocol.events import Event, TrainerStarting
from trainer.attempt.startup import StartupPhases


def test_phases_overlap_and_repeated_ones_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((0.0, 1.0, 1.0, 3.0, 7.0, 10.0, 10.5))
    monkeypatch.setattr("trainer.attempt.startup.time.monotonic", lambda: next(seconds))
    events: list[Event] = []
    startup = StartupPhases(events.append)
    with startup.phase("imports"):
        pass
    startup.begin("weights")
    startup.begin("engines")
    startup.end("weights")
    with startup.phase("imports"):
        pass
    assert startup.seconds == {"imports": 1.5, "weights": 6.0}
    said = [(e.phase, e.seconds) for e in events if isinstance(e, TrainerStarting)]
    assert said == [
        ("imports", None),
        ("imports", 1.0),
        ("weights", None),
        ("engines", None),
        ("weights", 6.0),
        ("imports", None),
        ("imports", 0.5),
    ]


def test_a_phase_that_fails_has_no_end() -> None:
    events: list[Event] = []
    startup = StartupPhases(events.append)
    with pytest.raises(ValueError, match="no model"), startup.phase("model"):
        raise ValueError("no model")
    assert len(events) == 1
    assert startup.seconds == {}
