"""`trace`: the timeline of one training step in Chrome's trace format, for ui.perfetto.dev."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import HillclimbError
from hillclimb.protocol.payloads.events import EventPayload

Json = dict[str, Any]
STARTS, COMPLETED = "phase.started", "step.completed"
ENDS = (COMPLETED, "eval.completed", "checkpoint.saved")
PAGE = 1000
PARTS: Mapping[str, Sequence[str]] = {
    "rollout": ("generate",),
    "train": (
        "convert_to_training_input",
        "compute_advantages_and_returns",
        "fwd_logprobs_values_reward",
        "policy_train",
    ),
    "sync": ("sync_weights",),
}
"""The metrics `timing/…` by the phase that they are parts of, in the order of the trainer."""
PHASES_TRACK, PARTS_TRACK = 1, 2


class StepNotCompleted(HillclimbError):
    """The run has completed no such step."""


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--step", type=click.IntRange(1), required=True, help="The training step.")
@command
def trace(*, run_id: str, step: int, as_json: bool) -> None:
    """Print the timeline of a step of RUN as a trace, to open in ui.perfetto.dev.

    The output is JSON with --json and without.
    """
    del as_json
    with connect() as client:
        journal = list(_journal(client, run_id))
        series = client.metrics(run_id, names="timing/*").data
    timings = {
        each.name.removeprefix("timing/"): point.value
        for each in series
        for point in each.points
        if point.step == step
    }
    sys.stdout.write(json.dumps(step_trace(journal, timings, run_id=run_id, step=step)) + "\n")


def step_trace(
    journal: Sequence[EventPayload], timings: Mapping[str, float], *, run_id: str, step: int
) -> Json:
    """Return the trace of a step: phases from events, and their parts from `timings` in seconds.

    Of a step that was repeated after a crash, the last attempt counts. The parts have durations and
    no times of their own: they stand one after another from the start of their phase.

    Raises:
        StepNotCompleted: no attempt has completed the step.
    """
    ends = [each for each in journal if each.type == COMPLETED and each.data["step"] == step]
    if not ends:
        raise StepNotCompleted(f"run {run_id} has not completed step {step}")
    own = [
        each for each in journal if each.attempt == ends[-1].attempt and each.data["step"] == step
    ]
    slices = list(_phases(own))
    origin = min(start for _, start, _ in slices) if slices else ends[-1].created_at
    names = {PHASES_TRACK: "phases", PARTS_TRACK: "parts, placed in order"}
    rows: list[Json] = [_name("process_name", 0, f"{run_id} step {step}")]
    rows += [_name("thread_name", track, name) for track, name in names.items()]
    for phase, start, duration_us in slices:
        at = _us(origin, start)
        rows.append(_slice(phase, PHASES_TRACK, at, duration_us))
        for part in PARTS.get(phase, ()):
            if part in timings:
                rows.append(_slice(part, PARTS_TRACK, at, timings[part] * 1e6))
                at += timings[part] * 1e6
    facts = {"run": run_id, "step": step, "attempt": ends[-1].attempt}
    started_at = {"started_at": origin.isoformat()}
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": facts | started_at}


def _phases(own: Sequence[EventPayload]) -> Iterator[tuple[str, datetime, float]]:
    """Yield each phase with its start and duration in µs: it ends where the next event is."""
    for event, following in itertools.pairwise(own):
        if event.type == STARTS:
            decoding = event.data.get("decoding")
            name = f"{event.data['phase']} {decoding}" if decoding else str(event.data["phase"])
            yield name, event.created_at, _us(event.created_at, following.created_at)


def _journal(client: Client, run_id: str) -> Iterator[EventPayload]:
    after, has_more = 0, True
    while has_more:
        page = client.events(run_id, after=after, limit=PAGE, types=",".join((STARTS, *ENDS)))
        yield from page.data
        has_more = page.has_more
        after = page.data[-1].seq if page.data else after


def _us(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() * 1e6


def _slice(name: str, track: int, at: float, duration_us: float) -> Json:
    times = {"ts": round(at, 1), "dur": round(duration_us, 1)}
    return {"name": name, "ph": "X", "pid": 1, "tid": track, "cat": "step"} | times


def _name(kind: str, track: int, name: str) -> Json:
    return {"name": kind, "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}
