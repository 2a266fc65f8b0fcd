"""The time that it takes to delete a run of a million rollouts, and to thin a long one's metrics.

    .venv/bin/python -m benchmarks.service.deletion.removal

PostgreSQL runs as `hillclimb up` starts it. The run has 1,000,000 outcomes, and 1,000,000 metric
points in 10 series of 100,000 steps; a second one has a fifth of that and stays. The sweep that
deletes has no pause between its batches here; the worker gives it 2 s in 5. Meanwhile another
thread ingests steps of a third run of 96 rollouts each, as it did before. Then the metrics of a
fourth run, with the same 1,000,000 points, are thinned. Writes `benchmarks/results/removal.json`.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from api.admission.deletion.runs import lock_for_deletion, mark_deleted
from api.notices.deliver import Delivery
from api.runs import store
from api.scheduling import control
from api.tables import DeletedRun, Run
from api.tables.database import Database
from benchmarks.service.outcomes import postgres
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.story import ENVS, Story, spec
from tests.fixtures.migrated import migrate
from worker.context import WorkerContext
from worker.runs.removal import retention, rows
from worker.runs.removal.deadline import Deadline
from worker.runs.removal.retention import RetentionRules
from worker.runs.removal.sweep import remove_run

RESULT = Path(__file__).parents[2] / "results" / "removal.json"
NUM_ROWS, NUM_SERIES = 1_000_000, 10
OUTCOMES = """
INSERT INTO outcomes SELECT (jsonb_populate_record(o, jsonb_build_object(
    'run_id', %(run)s::text, 'rollout_id', '1/' || n / 512 || '/train/' || n, 'step', n / 512))).*
FROM outcomes o, generate_series(1, %(number)s) n WHERE o.ctid = (SELECT ctid FROM outcomes LIMIT 1)
"""
METRICS = """
INSERT INTO metrics (run_id, name, decoding, step, attempt, value)
SELECT %(run)s, 'series/' || s, 'train', n, 1, random()
FROM generate_series(1, %(series)s) s, generate_series(1, %(number)s / %(series)s) n
"""


def main() -> None:
    """Measure, print the figures, and write them."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        Path(folder).chmod(0o755)  # the server's account has to enter it
        with postgres(Path(folder)) as server:
            migrate(server.url())
            database = Database(server.url())
            delivery = Delivery(database=database, slack=None, public_url="http://127.0.0.1:1")
            blobs = DiskStore(Path(folder) / "blobs")
            context = WorkerContext(
                database=database, store=blobs, owner="benchmark", delivery=delivery
            )
            facts = measure(context, server.url().replace("+psycopg", ""))
            database.close()
    facts = {"rows": 2 * NUM_ROWS, "cores": os.cpu_count(), **facts}
    print(json.dumps(facts, indent=1))
    RESULT.write_text(json.dumps(facts, indent=1) + "\n")


def measure(context: WorkerContext, url: str) -> dict[str, Any]:
    """Return the figures."""
    story = Story(context.database)
    story.prepare()
    big, small, thinned = (_ended(story) for _ in range(3))
    with psycopg.connect(url, autocommit=True) as connection:
        for run, number in ((big, NUM_ROWS), (small, NUM_ROWS // 5)):
            connection.execute(OUTCOMES, {"run": run, "number": number})
        for run, number in ((big, NUM_ROWS), (small, NUM_ROWS // 5), (thinned, NUM_ROWS)):
            values = {"run": run, "number": number, "series": NUM_SERIES}
            connection.execute(METRICS, values)
        connection.execute("VACUUM ANALYZE")
    writer = story.running(spec("writer"))
    before = _ingest(story, writer, until=_after(20.0))
    with context.database.transaction() as session:
        run = lock_for_deletion(session, big)
        mark_deleted(session, run, by="key:benchmark", reason="request", now=story.now)
    batches: list[float] = []
    during: list[float] = []
    done = threading.Event()
    thread = threading.Thread(target=lambda: during.extend(_ingest(story, writer, done.is_set)))
    thread.start()
    began = time.perf_counter()
    with Timed(batches):
        assert remove_run(context, big, now=story.now, deadline=Deadline(3600.0))
    took = time.perf_counter() - began
    done.set()
    thread.join()
    with context.database.transaction() as session:
        num_rows = session.get_one(DeletedRun, big).num_rows
        assert session.get(Run, small) is not None
    began = time.perf_counter()
    rules = RetentionRules(metrics_days=1.0)
    later = story.now + timedelta(days=2)
    retention.sweep(context, rules, now=later, deadline=Deadline(3600.0))
    thinning = time.perf_counter() - began
    return {
        "deleted_rows": num_rows,
        "deletion_s": round(took, 1),
        "batches_of": rows.BATCH,
        "batch_p50_ms": round(1000 * statistics.median(batches), 1),
        "longest_batch_ms": round(1000 * max(batches), 1),
        "ingest_of_a_step_before_p50_p95_ms": _quantiles(before),
        "ingest_of_a_step_meanwhile_p50_p95_ms": _quantiles(during),
        "thinned_points": NUM_ROWS + NUM_ROWS // 5,
        "thinning_s": round(thinning, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def _ended(story: Story) -> str:
    run_id = story.running(spec("ended"))
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    story.finish(run_id, 40, ReasonCode.TRAINER_CRASHED)
    with story.database.transaction() as session:
        control.cancel(session, store.lock_run(session, run_id), actor="key:x", now=story.now)
    return run_id


def _ingest(story: Story, run_id: str, until: Callable[[], bool]) -> list[float]:
    times = []
    step = story.seqs[run_id]
    while not until():
        step += 1
        event = story.step(run_id, step, dict.fromkeys(ENVS, 0.5))
        began = time.perf_counter()
        story.push(run_id, event)
        times.append(time.perf_counter() - began)
        time.sleep(0.05)
    return times


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


class Timed:
    """Times each batch of the code under measurement, which is called as it is."""

    def __init__(self, times: list[float]) -> None:
        self._times, self._batch = times, rows.delete_batch

    def __enter__(self) -> None:
        def timed(*args: Any, **kwargs: Any) -> int:
            began = time.perf_counter()
            number = self._batch(*args, **kwargs)
            self._times.append(time.perf_counter() - began)
            return number

        rows.delete_batch = timed

    def __exit__(self, *_: object) -> None:
        rows.delete_batch = self._batch


def _quantiles(times: list[float]) -> list[float]:
    cuts = statistics.quantiles(times, n=20)
    return [round(1000 * cuts[9], 1), round(1000 * cuts[18], 1)]


if __name__ == "__main__":
    main()
