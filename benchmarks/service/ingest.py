"""The cost of ingest: CPU of a row with a statement per row and one per table, values per second.

    .venv/bin/python -m benchmarks.service.ingest [--seconds N] [--rounds N]

PostgreSQL runs as `hillclimb up` starts it. First the same steps are recorded in turn by a
statement per row, as before, and by one per table; the CPU time is that of the thread that records
and that of PostgreSQL's backend. Then senders in a process of their own push batches of each shape
over loopback to the real application, each sender to a run of its own; "values" are metric values,
or events where a shape has none. Writes `benchmarks/results/ingest.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from sqlalchemy import Table, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.scheduling.record import record_push
from api.tables import Base, Project
from api.tables.bulk import upsert_rows
from api.tables.database import Database
from benchmarks.service.outcomes import postgres
from hillclimb.protocol.events import Event, IngestBatch, PhaseStarted, StepCompleted
from hillclimb.protocol.launch import LaunchPlan
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.serving import serve
from tests.api.fixtures.stage import Stage
from tests.api.fixtures.story import rollout
from tests.fixtures.migrated import migrate

RESULT = Path(__file__).parents[1] / "results" / "ingest.json"
SENDERS = (1, 4, 16)
ENVS = ("booking", "github", "outlook", "reddit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A batch: `events` steps with `metrics` values and `outcomes` rollouts each."""

    events: int
    metrics: int
    outcomes: int = 0

    @property
    def values(self) -> int:
        """Values of a batch; its events if it has no metrics."""
        return self.events * (self.metrics or 1)

    def batch(self, first: int) -> Sequence[Event]:
        """Return the batch whose first event has this number."""
        return [self._event(seq) for seq in range(first, first + self.events)]

    def _event(self, seq: int) -> Event:
        place: dict[str, Any] = {"trainer_seq": seq, "at": datetime.now(UTC), "step": seq}
        if not self.metrics:
            return PhaseStarted(**place, phase="rollout")
        rows = tuple(
            rollout(
                ENVS[number % len(ENVS)],
                number // 8,
                passed=number % 3 == 0,
                decoding="train",
                split="train",
                step=seq,
                sample=number % 8,
            )
            for number in range(self.outcomes)
        )
        metrics = {f"policy/figure_{number:03}": number + seq / 7 for number in range(self.metrics)}
        return StepCompleted(**place, metrics=metrics, outcomes=rows)


SHAPES = {
    "phase.started x 500": Shape(events=500, metrics=0),
    "5 metrics x 500": Shape(events=500, metrics=5),
    "5 metrics x 1": Shape(events=1, metrics=5),
    "100 metrics x 10": Shape(events=10, metrics=100),
    "200 metrics x 5": Shape(events=5, metrics=200),
    "a step: 219 metrics, 160 outcomes": Shape(events=1, metrics=219, outcomes=160),
}
PER_ROW, PER_TABLE = "a statement per row", "a statement per table"
Write = Callable[[Session, type[Base], Any], None]
WRITER = "api.results.derive.upsert_rows"
"""What writes the derived rows. Events are one row of a step's hundreds, and are not compared."""
STEP = SHAPES["a step: 219 metrics, 160 outcomes"]


def per_row(session: Session, model: type[Base], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as ingest did before: `executemany`, which sends a statement per row."""
    table = model.__table__
    assert isinstance(table, Table)
    names = [column.name for column in table.primary_key]
    unique = list({tuple(row[name] for name in names): row for row in rows}.values())
    if not unique:
        return
    statement = insert(table)
    new = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in names}
    session.execute(statement.on_conflict_do_update(index_elements=names, set_=new), unique)


def _timed(write: Write, spent_s: list[float]) -> Write:
    """Return `write`, which adds the CPU time of its thread to `spent_s[0]`."""

    def timed(session: Session, model: type[Base], rows: Any) -> None:
        rows = list(rows)
        began = time.thread_time()
        write(session, model, rows)
        spent_s[0] += time.thread_time() - began

    return timed


def backend_cpu_s(session: Session) -> float:
    """Return the CPU time of the session's backend (s)."""
    pid = session.scalar(text("SELECT pg_backend_pid()"))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_per_step(database: Database, plans: Mapping[str, LaunchPlan], rounds: int) -> Any:
    """Record steps in turn by both ways; return CPU times of a step and of a row."""
    spent = {way: {"api": 0.0, "writing": 0.0, "postgres": 0.0} for way in plans}
    for number in range(rounds + 3):
        for way, plan in plans.items():
            events = STEP.batch(number + 1)
            writing = [0.0]
            with ExitStack() as stack:
                writer = per_row if way == PER_ROW else upsert_rows
                stack.enter_context(patch(WRITER, _timed(writer, writing)))
                session = stack.enter_context(database.transaction())
                before, began = backend_cpu_s(session), time.thread_time()
                record_push(session, plan.attempt_token, events, now=datetime.now(UTC))
                session.flush()
                recording, backend = time.thread_time() - began, backend_cpu_s(session) - before
            if number >= 3:
                spent[way]["api"] += recording
                spent[way]["writing"] += writing[0]
                spent[way]["postgres"] += backend
    rows = STEP.metrics + STEP.outcomes + len(ENVS)
    return {
        way: {
            f"{side}_cpu_us_per_row": round(1e6 * seconds / rounds / rows, 1)
            for side, seconds in sides.items()
        }
        | {"api_cpu_ms_per_step": round(1e3 * sides["api"] / rounds, 2)}
        for way, sides in spent.items()
    }


def send(url: str, shape: Shape, tokens: Sequence[str], seconds: float, start: Barrier) -> None:
    """Push batches from one thread per token until the time is over; runs in its own process."""

    def push(token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
            start.wait()
            deadline = time.monotonic() + seconds
            for first in itertools.count(1, shape.events):
                body = IngestBatch(events=tuple(shape.batch(first))).model_dump_json()
                client.post(f"{url}/v1/ingest", content=body).raise_for_status()
                if time.monotonic() > deadline:
                    return

    threads = [threading.Thread(target=push, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def throughput(stage: Stage, url: str, shape: Shape, senders: int, seconds: float) -> Any:
    """Return what the service stored in a second, and its CPU time for a thousand values."""
    plans = [launch(stage, f"sender-{time.monotonic_ns()}") for _ in range(senders)]
    tokens = [plan.attempt_token for plan in plans]
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(senders + 1)
    process = context.Process(target=send, args=(url, shape, tokens, seconds, start))
    process.start()
    start.wait()
    began, cpu = time.monotonic(), time.process_time()
    process.join()
    wall, used = time.monotonic() - began, time.process_time() - cpu
    with stage.database.transaction() as session:
        query = text("SELECT sum(last_trainer_seq) FROM attempts WHERE id = ANY(:ids)")
        events = int(session.scalar(query, {"ids": [plan.attempt_id for plan in plans]}) or 0)
    values = events * shape.values / shape.events
    return {
        "values_per_s": round(values / wall),
        "batches_per_s": round(events / shape.events / wall, 1),
        "api_cpu_ms_per_1000_values": round(1e6 * used / values, 2),
        "api_share_of_a_core": round(used / wall, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def launch(stage: Stage, name: str) -> LaunchPlan:
    """Return the plan of a run that a runner of its own has claimed."""
    schedule = {"total_steps": 1_000_000, "train_batch_size": 2, "mini_batch_size": 1}
    runner_id, run_id = stage.register(name), stage.submit(schedule=schedule)
    return stage.launch(run_id, runner_id)


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each shape and senders")
    parser.add_argument("--rounds", type=int, default=200, help="steps of each way of writing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, postgres(Path(name)) as server:
        migrate(server.url())
        database = Database(server.url())
        with serve(server.url(), database, Path(name) / "blobs", has_own_pool=True) as served:
            with database.transaction() as session:
                session.merge(Project(id=PROJECT, name=PROJECT))
            stage = Stage(database)
            plans = {way: launch(stage, way.replace(" ", "-")) for way in (PER_ROW, PER_TABLE)}
            cpu = cpu_per_step(database, plans, arguments.rounds)
            print(json.dumps(cpu, indent=1))
            shapes: dict[str, Any] = {}
            for label, shape in SHAPES.items():
                for senders in SENDERS:
                    measured = throughput(stage, served.url, shape, senders, arguments.seconds)
                    shapes.setdefault(label, {})[str(senders)] = measured
                    print(label, senders, measured, flush=True)
        database.close()
    result = {
        "measured": datetime.now(UTC).date().isoformat(),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "rows_of_a_step": STEP.metrics + STEP.outcomes + len(ENVS) + STEP.events,
        "cpu": cpu,
        "senders": shapes,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
