"""Phases on a timeline: the run's statuses, the trainer's phases and steps, the learner's parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.results.artifacts.timeline.trace import Trace, Track

STARTED, STEP, STATUS = "phase.started", "step.completed", "run.status_changed"
STARTING = "trainer.starting"
CREATED, ENDED = "run.created", "attempt.ended"
PHASE_TYPES = (
    STARTED,
    STEP,
    "eval.completed",
    "checkpoint.saved",
    "step.abandoned",
    "trainer.ended",
    ENDED,
)
"""Events that begin or end a phase."""
STATUS_TYPES = (CREATED, STATUS)
START_TYPES = (STARTING,)
"""Events about the phases of a start, some of which overlap."""
PARTS: Mapping[str, Sequence[str]] = {
    "rollout": ("generate",),
    "train": (
        "convert_to_training_input",
        "compute_advantages_and_returns",
        "fwd_logprobs_values_reward",
        "policy_train",
        "store_token_values",
    ),
    "sync": ("sync_weights",),
}
"""The metrics `timing/…` by the phase that they are parts of, in the order of the trainer."""
STATUSES = Track(1, "service", 1, "status")

Timings = Mapping[tuple[int, int], Mapping[str, float]]
"""The metrics `timing/…` by attempt and step (seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event that begins or ends something on a timeline."""

    type: str
    attempt: int
    at: float
    """Seconds since the epoch."""
    step: int | None = None
    phase: str | None = None
    seconds: float | None = None
    """How long a phase of the start took, at its end."""
    decoding: str | None = None
    num_rollouts: int | None = None
    status: str | None = None
    """The status that the run has from then on."""


def draw_statuses(trace: Trace, events: Sequence[Mark], *, until: float) -> None:
    """Draw what the run waited for and did: each status lasts until the next."""
    changes = [each for each in events if each.type in STATUS_TYPES]
    for event, following in itertools.zip_longest(changes, changes[1:]):
        status = "queued" if event.type == CREATED else str(event.status)
        if following is None and status in ("completed", "failed", "cancelled"):
            continue
        end = until if following is None else following.at
        trace.slice(STATUSES, status, event.at, end, category="status")


def draw_starts(trace: Trace, events: Sequence[Mark]) -> None:
    """Draw the phases of each attempt's start, each on a track of its own: some overlap."""
    ended = [each for each in events if each.type == STARTING and each.seconds is not None]
    names = list(dict.fromkeys(str(each.phase) for each in ended))
    for event in ended:
        name = str(event.phase)
        process = f"trainer, attempt {event.attempt}"
        track = Track(1 + event.attempt, process, 3 + names.index(name), f"start: {name}")
        begin = event.at - (event.seconds or 0.0)
        trace.slice(track, name, begin, event.at, category="start")


def draw_phases(
    trace: Trace, events: Sequence[Mark], timings: Timings, *, until: float | None
) -> None:
    """Draw the phases of every attempt, the steps around them, and the parts of the phases.

    A phase ends where the next event is, and at `until` if there is none; None leaves it out. The
    parts have durations and no times of their own: they stand one after another from the start of
    their phase.
    """
    relevant = [each for each in events if each.type in PHASE_TYPES]
    for number in sorted({each.attempt for each in relevant}):
        own = [each for each in relevant if each.attempt == number]
        name = f"trainer, attempt {number}"
        phases, learner = Track(1 + number, name, 1, "phases"), Track(1 + number, name, 2, "parts")
        _draw_steps(trace, phases, own)
        for event, begin, end in _ends(own, until):
            phase = str(event.phase)
            label = f"{phase} {event.decoding}" if event.decoding else phase
            numbers = {"step": event.step, "num_rollouts": event.num_rollouts}
            args = {key: number for key, number in numbers.items() if number is not None}
            trace.slice(phases, label, begin, end, category="phase", args=args)
            measured = timings.get((number, event.step or 0), {})
            at = begin
            for part in PARTS.get(phase, ()):
                if part in measured:
                    trace.slice(learner, part, at, at + measured[part], category="part")
                    at += measured[part]


def _draw_steps(trace: Trace, track: Track, own: Sequence[Mark]) -> None:
    """Draw each completed step from the start of its rollouts."""
    begun: dict[int, float] = {}
    for event in own:
        step = event.step or 0
        if event.type == STARTED and event.phase == "rollout":
            begun[step] = event.at
        elif event.type == STEP and step in begun:
            trace.slice(track, f"step {step}", begun[step], event.at, category="step")


def _ends(own: Sequence[Mark], until: float | None) -> Iterator[tuple[Mark, float, float]]:
    for event, following in itertools.zip_longest(own, own[1:]):
        if event.type != STARTED:
            continue
        if following is not None:
            yield event, event.at, following.at
        elif until is not None:
            yield event, event.at, until
