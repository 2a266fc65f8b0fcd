"""Spans of an attempt for OpenTelemetry: steps below the attempt, phases below their steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hillclimb.process import tracing
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import (
    Event,
    PhaseStarted,
    StepCompleted,
    TrainerEnded,
    TrainerStarting,
)
from hillclimb.protocol.rundir import AttemptDir
from trainer.attempt.sinks.follower import Follower

if TYPE_CHECKING:
    from opentelemetry.trace import Span

NAME = "tracing"


def tracing_sink(attempt_dir: AttemptDir, environ: Mapping[str, str]) -> Follower | None:
    """Return the sink that exports the attempt's spans; None where tracing is off."""
    if not tracing.is_requested(environ):
        return None
    begin, parent = time.time(), environ.get(tracing.TRACEPARENT)
    return Follower(
        attempt_dir.events,
        lambda: AttemptSpans(attempt_dir, parent=parent, begin=begin),
        name=NAME,
    )


class AttemptSpans:
    """Makes spans of events: a phase ends where the next event is, a step with its completion."""

    def __init__(self, attempt_dir: AttemptDir, *, parent: str | None, begin: float) -> None:
        tracing.start_tracing("hillclimb-trainer")
        self._run = {"hillclimb.run": attempt_dir.run_dir.name}
        name = f"attempt {attempt_dir.attempt}"
        self._attempt = tracing.begin_span(name, parent=parent, begin=begin, attributes=self._run)
        self._step: Span | None = None
        self._phase: Span | None = None

    def take(self, event: Event) -> None:
        """End the phase under way, and begin or end what the event says."""
        at = event.at.timestamp()
        if isinstance(event, TrainerStarting):
            self._add_start(event, at)
            return
        _end(self._phase, at)
        self._phase = None
        if isinstance(event, PhaseStarted):
            if event.phase == "rollout":
                _end(self._step, at)
                self._step = self._begin(f"step {event.step}", self._attempt, event)
            self._phase = self._begin(event.phase, self._step or self._attempt, event)
        elif isinstance(event, StepCompleted):
            _end(self._step, at)
            self._step = None
        elif isinstance(event, TrainerEnded):
            if self._attempt is not None:
                self._attempt.set_attribute("hillclimb.end_reason", event.reason.value)
                if event.reason is not ReasonCode.COMPLETED:
                    self._attempt.set_attribute("error.type", event.reason.value)
            _end(self._step, at)
            _end(self._attempt, at)
            self._step = self._attempt = None

    def _add_start(self, event: TrainerStarting, at: float) -> None:
        """Make a span of a phase of the start once it has ended: several may go on at once."""
        if event.seconds is None or self._attempt is None:
            return
        above = tracing.traceparent_of(self._attempt)
        begin = at - event.seconds
        name = f"start {event.phase}"
        _end(tracing.begin_span(name, parent=above, begin=begin, attributes=self._run), at)

    def rest(self) -> None:
        """Do nothing: the exporter has a thread of its own."""

    def finish(self) -> None:
        """End what is open and export the rest."""
        for span in (self._phase, self._step, self._attempt):
            _end(span, time.time())
        tracing.stop_tracing()

    def _begin(self, name: str, parent: Span | None, event: PhaseStarted) -> Span | None:
        above = None if parent is None else tracing.traceparent_of(parent)
        facts: dict[str, str | int] = {"hillclimb.step": event.step, **self._run}
        if event.decoding is not None:
            facts["hillclimb.decoding"] = event.decoding
        return tracing.begin_span(name, parent=above, begin=event.at.timestamp(), attributes=facts)


def _end(span: Span | None, at: float) -> None:
    if span is not None:
        span.end(int(at * tracing.NANOSECONDS))
