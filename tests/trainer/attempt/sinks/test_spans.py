"""Spans of a trainer: steps below the attempt, phases below their steps, in the service's trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.process import tracing
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import PhaseStarted, TrainerStarting
from hillclimb.protocol.rundir import AttemptDir
from tests.fixtures.factories import ended, evaluated, started, step
from tests.fixtures.otlp import Receiver, otlp_receiver
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.spans import tracing_sink

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WAIT_S = 30.0


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with otlp_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        yield received
    tracing.stop_tracing()


def traced(root: Path, url: str) -> bool:
    """Trace an attempt of one step and one evaluation."""
    attempt_dir = AttemptDir(root / "runs" / "run_1", 1)
    file = JsonlFile(attempt_dir.events)
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}
    sink = tracing_sink(attempt_dir, environ)
    assert sink is not None
    journal = EventJournal(file, [sink])
    for event in (
        TrainerStarting(step=0, phase="ray"),
        TrainerStarting(step=0, phase="ray", seconds=2.0),
        started(1, engine="torch"),
        PhaseStarted(step=1, phase="rollout", num_rollouts=8),
        PhaseStarted(step=1, phase="train"),
        PhaseStarted(step=1, phase="sync"),
        step(2, 1),
        PhaseStarted(step=1, phase="eval", decoding="greedy"),
        evaluated(3, 1),
        ended(4, ReasonCode.COMPLETED),
    ):
        journal.emit(event)
    return journal.close(drain_s=WAIT_S)


def test_steps_lie_below_the_attempt_and_phases_below_their_steps(
    tmp_path: Path, receiver: Receiver
) -> None:
    assert traced(tmp_path, receiver.url)
    attempt, first = receiver.named("attempt 1"), receiver.named("step 1")
    assert (attempt.trace_id, attempt.parent_id) == (TRACE, PARENT)
    assert first.parent_id == attempt.span_id
    for phase in ("rollout", "train", "sync"):
        span = receiver.named(phase)
        assert span.parent_id == first.span_id
        assert first.begin <= span.begin <= span.end <= first.end
    ray = receiver.named("start ray")
    assert ray.parent_id == attempt.span_id
    assert ray.end - ray.begin == pytest.approx(2.0, abs=0.01)
    assert receiver.named("eval").parent_id == attempt.span_id
    assert receiver.named("eval").attributes["hillclimb.decoding"] == "greedy"
    assert attempt.attributes["hillclimb.end_reason"] == "completed"
    assert {span.service for span in receiver.spans} == {"hillclimb-trainer"}


def test_a_collector_that_is_gone_does_not_hold_the_end_of_the_run(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.status = 400
    assert traced(tmp_path, receiver.url)
    assert receiver.spans == []


def test_nothing_is_traced_without_an_endpoint(tmp_path: Path) -> None:
    assert tracing_sink(AttemptDir(tmp_path, 1), {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}) is None
