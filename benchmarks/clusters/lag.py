"""How late the service looks at 1,000 live clusters and their runs: real workers, real time.

    .venv/bin/python -m benchmarks.clusters.lag [--clusters 1000] [--seconds 200]

PostgreSQL and Valkey as `hillclimb up` starts them, beat, and its two workers: `worker` (one
process) and `cluster-worker` (four, queue `clusters`). Clouds are a table, with calls that take
their time (`timed.py`). Meanwhile runs end, are submitted, enter their clusters; clusters are taken
back. Every look is measured by a trigger of the benchmark's own database, when it is written down:
clock - due_at, so that the service's code is the service's code. A look is due 15 s after the last
for a cluster at work, 5 s for a run, 3 s for a cluster that comes or goes.

Writes `benchmarks/results/clusters_lag.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil
import psycopg

from api.admission.submit import submit
from api.clusters import budgets
from api.clusters.names import deployment_tag, prefix
from api.queue import CeleryTaskQueue
from api.runs import store
from api.runs.errors import AttemptSuperseded, UnknownToken
from api.scheduling.advance import advance
from api.scheduling.record import record_push
from api.scheduling.rented import bootstrap, nodes
from api.tables import Project, ProjectLimits, Run
from api.tables.database import Database
from benchmarks.clusters.timed import CALL_S, TABLE
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import BootstrapClaim, EndReport
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.valkey import ValkeyServer
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.fixtures import factories as make
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import launch, stop
from tests.worker.api_presence import Api
from tests.worker.clusters.cluster_simulation import cluster_spec

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks/results/clusters_lag.json"
BAR_S = 5.0
PROJECT, SECRET = "prj_lag", "a secret that is long enough"
SETTLE_S = 30.0
"""Of starting processes; what is measured meanwhile does not count."""
TURNOVER_S, TAKEN_S = 2.0, 10.0
"""A run ends and another is submitted, a cluster is taken back, every so many seconds."""
BEAT_S = 15.0

MEASURE = """
CREATE UNLOGGED TABLE bench.looks (what text, how text, lag_s float8, at timestamptz);
CREATE FUNCTION bench.look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch <> OLD.epoch THEN
        INSERT INTO bench.looks VALUES (TG_TABLE_NAME, 'in a task',
            extract(epoch FROM clock_timestamp() - OLD.due_at), clock_timestamp());
    ELSIF OLD.due_at <= clock_timestamp() AND NEW.due_at > OLD.due_at
          AND OLD.lease_until IS NULL AND NEW.lease_until IS NULL THEN
        INSERT INTO bench.looks VALUES (TG_TABLE_NAME, 'put off together',
            extract(epoch FROM clock_timestamp() - OLD.due_at), clock_timestamp());
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER look AFTER UPDATE OF due_at, epoch ON runs
    FOR EACH ROW EXECUTE FUNCTION bench.look();
CREATE TRIGGER look AFTER UPDATE OF due_at, epoch ON clusters
    FOR EACH ROW EXECUTE FUNCTION bench.look();
"""

COLUMNS = ", ".join(c.name for c in Run.__table__.columns if c.computed is None)
COPIES = f"""
CREATE TEMP TABLE n AS SELECT i, lpad(i::text, 10, '0') AS tail, random() * 15 AS jitter
    FROM generate_series(1, %(number)s) AS i;
CREATE TEMP TABLE r AS SELECT * FROM runs LIMIT 1;
CREATE TEMP TABLE a AS SELECT * FROM attempts LIMIT 1;
CREATE TEMP TABLE c AS SELECT * FROM clusters LIMIT 1;
INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM (SELECT (jsonb_populate_record(
    r, jsonb_build_object('id', 'run_copy' || n.tail,
    'due_at', now() + n.jitter / 3 * interval '1 second'))).* FROM r, n) copies;
INSERT INTO attempts SELECT (jsonb_populate_record(a, jsonb_build_object(
    'id', 'att_copy' || n.tail, 'run_id', 'run_copy' || n.tail,
    'token_hash', 'copy' || n.tail))).* FROM a, n;
INSERT INTO clusters SELECT (jsonb_populate_record(c, jsonb_build_object(
    'id', 'clu_copy' || n.tail, 'run_id', 'run_copy' || n.tail, 'attempt_id', 'att_copy' || n.tail,
    'name', %(prefix)s || n.tail || '-1', 'bootstrap_nonce', n.tail,
    'due_at', now() + n.jitter * interval '1 second'))).* FROM c, n;
INSERT INTO bench.clouds SELECT name, attempt_id, now() FROM clusters;
"""


@dataclass(slots=True)
class Bench:
    """The servers that are up, and what is begun against them."""

    url: str
    redis_url: str
    folder: Path
    database: Database
    connection: psycopg.Connection[Any]
    ours: str
    entered: set[str] = field(default_factory=set)
    """Names of clusters that are no copies and whose job has entered."""
    tokens: list[str] = field(default_factory=list)
    num_ended: int = 0
    num_taken: int = 0
    num_submitted: int = 0
    most_overdue_s: dict[str, float] = field(default_factory=lambda: {"runs": 0.0, "clusters": 0.0})

    def sql(self, query: str, *values: Any) -> list[Any]:
        cursor = self.connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []

    def submit(self) -> str:
        """Submit a run as the API does."""
        self.num_submitted += 1
        with self.database.transaction() as session:
            spec = cluster_spec(f"lag {self.num_submitted}")
            now = datetime.now(UTC)
            return submit(session, spec, project_id=PROJECT, actor="key:u", now=now).id

    def enter(self, name: str, job_name: str) -> None:
        """The job of a new cluster takes its attempt, and its trainer speaks."""
        self.entered.add(name)
        code = bootstrap.bootstrap_token(job_name, secret=SECRET)
        body = BootstrapClaim(attempt_id=job_name, code=code, nonce=name[-16:].rjust(16, "0"))
        now = datetime.now(UTC)
        try:
            with self.database.transaction() as session:
                plan = bootstrap.claim(session, body, secret=SECRET, ingest_url="u", now=now)
        except AttemptSuperseded:
            return
        with self.database.transaction() as session:
            record_push(session, plan.attempt_token, (make.started(1),), now=now)
        self.tokens.append(plan.attempt_token)

    def end_one(self) -> None:
        """A run that was submitted here ends well."""
        if len(self.tokens) < 5:
            return
        end = EndReport(reason=ReasonCode.COMPLETED, message="done", last_trainer_seq=1)
        try:
            with self.database.transaction() as session:
                nodes.report_end(session, self.tokens.pop(0), end, now=datetime.now(UTC))
            self.num_ended += 1
        except UnknownToken:
            return

    def take_one_back(self) -> None:
        """A cloud takes the cluster of a copy back; its node is silent from now on."""
        taken = self.sql(
            "UPDATE bench.clouds SET terminated_at = now()"
            " WHERE name = (SELECT name FROM bench.clouds WHERE job_name LIKE 'att_copy%%'"
            " AND terminated_at IS NULL LIMIT 1) RETURNING name"
        )
        self.num_taken += len(taken)

    def beat(self, turn: int, turns: int) -> None:
        """Note the beats of one part of the nodes, as `nodes.heartbeat` notes each."""
        self.sql(
            "UPDATE attempts a SET last_held_at = now() FROM bench.clouds b"
            " WHERE a.id = b.job_name AND a.state = 'running' AND b.terminated_at IS NULL"
            " AND abs(hashtext(a.id)) %% %s = %s",
            turns,
            turn,
        )

    def watch(self) -> None:
        """See how late the latest is just now, looked at or not."""
        for table in self.most_overdue_s:
            ((late,),) = self.sql(
                f"SELECT extract(epoch FROM clock_timestamp() - min(due_at))::float8 FROM {table}"
                " WHERE lease_until IS NULL"
            )
            self.most_overdue_s[table] = max(self.most_overdue_s[table], late or 0.0)

    def environment(self) -> dict[str, str]:
        wheel = self.folder / "hillclimb-0.1.0-py3-none-any.whl"
        wheel.touch()
        return {
            **os.environ,
            "DATABASE_URL": self.url,
            "REDIS_URL": self.redis_url,
            "HILLCLIMB_BLOBS_URL": str(self.folder / "blobs"),
            "HILLCLIMB_SECRET_KEY": SECRET,
            "HILLCLIMB_CLOUDS": "benchmarks.clusters.timed:make_clouds",
            "HILLCLIMB_WHEEL": str(wheel),
            "PYTHONUNBUFFERED": "1",
        }


@contextmanager
def servers(folder: Path) -> Iterator[tuple[PostgresServer, ValkeyServer]]:
    """PostgreSQL and Valkey with the settings of `hillclimb up`."""
    postgres = PostgresServer(directory=folder / "pg", port=find_free(), password="p" * 24)
    valkey = ValkeyServer(directory=folder / "valkey", port=find_free(), password="v" * 24)
    with ExitStack() as stack:
        for server, cwd in ((postgres, postgres.data), (valkey, folder)):
            server.initialise()
            account = getattr(server, "account", None)
            log = folder / f"{type(server).__name__}.log"
            process = launch(server.command(), cwd=cwd, log=log, account=account)
            stack.callback(stop, process)
            assert wait_until(server.ready, deadline_s=60.0), log.read_text()[-2000:]
        yield postgres, valkey


@contextmanager
def workers(bench: Bench) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Beat and the two workers, as `hillclimb.stack.services` starts them."""
    quick = ("--without-gossip", "--without-mingle", "--loglevel", "INFO")
    commands = {
        "worker": ("worker", "--concurrency", "1", "--hostname", "hillclimb@%h", *quick),
        "cluster-worker": (
            *("worker", "--queues", "clusters", "--concurrency", "4"),
            *("--hostname", "clusters@%h", *quick),
        ),
        "beat": ("beat", "--loglevel", "INFO", "-s", str(bench.folder / "beat"), "--pidfile="),
    }
    started = {}
    try:
        for name, options in commands.items():
            with (bench.folder / f"{name}.log").open("wb") as log:
                started[name] = subprocess.Popen(
                    [sys.executable, "-m", "celery", "-A", "worker.app", *options],
                    cwd=ROOT,
                    env=bench.environment(),
                    stdout=log,
                    stderr=log,
                )
        for name in ("worker", "cluster-worker"):
            log = bench.folder / f"{name}.log"
            assert wait_until(lambda: " ready." in log.read_text(), deadline_s=180.0)  # noqa: B023
        yield started
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait(60)


def fill(bench: Bench, number: int) -> None:
    """Bring one run to its trainer's first event by the service's own code, then copy its rows."""
    with bench.database.transaction() as session:
        session.add(Project(id=PROJECT, name="lag"))
        session.flush()
        limits = ProjectLimits(
            project_id=PROJECT, max_clusters=2 * number, since=datetime.now(UTC), set_by="u"
        )
        budgets.set_limits(session, limits)
        bench.ours = prefix(deployment_tag(session))
    run_id, now = bench.submit(), datetime.now(UTC)
    with bench.database.transaction() as session:
        run = store.lock_run(session, run_id)
        advance(session, run, now=now)
        attempt = store.newest_attempt(session, run)
        assert attempt is not None
        attempt_id = attempt.id
    bench.sql(
        "UPDATE clusters SET state = 'running', running_at = now(), billed_from = now(),"
        " observed_state = 'up', launch_tries = 1,"
        " launch_requested_at = now(), job_id = 1, infra = 'lambda', region = 'us-west-1',"
        " sku = 'gpu_8x_h100', hourly_usd = 23.92, wall_limit_at = now() + interval '24 hours'"
    )
    bench.enter(f"{bench.ours}{run_id[-10:]}-1", attempt_id)
    values = {"number": number - 1, "prefix": bench.ours}
    for statement in COPIES.split(";\n"):
        if statement.strip():
            cursor = psycopg.ClientCursor(bench.connection)
            cursor.execute(statement, values)
    bench.sql("ANALYZE")


def play(bench: Bench, task_queue: CeleryTaskQueue, seconds: float) -> None:
    """Be the nodes, the users and the clouds for so long."""
    begun = time.monotonic()
    turned = taken = begun
    turns = int(BEAT_S / 0.5)
    for beat in range(int(seconds / 0.5)):
        bench.beat(beat % turns, turns)
        if beat % 2 == 0:
            bench.watch()
            up = bench.sql(
                "SELECT name, job_name FROM bench.clouds"
                " WHERE running_at <= now() AND terminated_at IS NULL"
                " AND job_name NOT LIKE 'att_copy%%'"
            )
            for name, job_name in up:
                if name not in bench.entered:
                    bench.enter(name, job_name)
        if time.monotonic() - turned >= TURNOVER_S:
            turned += TURNOVER_S
            bench.end_one()
            task_queue.enqueue([bench.submit()])
        if time.monotonic() - taken >= TAKEN_S:
            taken += TAKEN_S
            bench.take_one_back()
        time.sleep(max(0.0, begun + 0.5 * (beat + 1) - time.monotonic()))


def spread(bench: Bench, what: str, how: str | None) -> dict[str, Any]:
    """Return how late looks were (seconds)."""
    query = "SELECT lag_s FROM bench.looks WHERE what = %s AND lag_s >= 0"
    rows = bench.sql(query + (" AND how = %s" if how else ""), what, *([how] if how else []))
    found = [row[0] for row in rows]
    if len(found) < 2:
        return {"looks": len(found)}
    cuts = quantiles(found, n=100)
    return {
        "looks": len(found),
        "p50_s": round(cuts[49], 3),
        "p99_s": round(cuts[98], 3),
        "max_s": round(max(found), 3),
    }


def busy(processes: dict[str, subprocess.Popen[bytes]]) -> dict[str, float]:
    """Return the processor seconds of each service with its children so far."""
    found = {}
    for name, process in processes.items():
        root = psutil.Process(process.pid)
        times = [each.cpu_times() for each in (root, *root.children(recursive=True))]
        found[name] = sum(each.user + each.system for each in times)
    return found


def measure(bench: Bench, given: argparse.Namespace) -> dict[str, Any]:
    fill(bench, given.clusters)
    task_queue = CeleryTaskQueue(bench.redis_url)
    load = os.getloadavg()
    with workers(bench) as processes:
        play(bench, task_queue, SETTLE_S)
        bench.sql("TRUNCATE bench.looks")
        bench.most_overdue_s = dict.fromkeys(bench.most_overdue_s, 0.0)
        before, began = busy(processes), time.monotonic()
        play(bench, task_queue, given.seconds)
        after, seconds = busy(processes), time.monotonic() - began
    task_queue.close()
    states = bench.sql("SELECT state, count(*) FROM clusters GROUP BY state ORDER BY state")
    hows = ("put off together", "in a task")
    return {
        "clusters": given.clusters,
        "seconds": round(seconds, 1),
        "bar_s": BAR_S,
        "cores": os.cpu_count(),
        "load_average": [round(each, 1) for each in load],
        "processes": {"worker": 1, "cluster-worker": 4},
        "call_s": CALL_S,
        "runs_submitted": bench.num_submitted,
        "runs_ended": bench.num_ended,
        "clusters_taken_back": bench.num_taken,
        "states_at_the_end": dict(states),
        "lag": {
            what: spread(bench, what, None) | {how: spread(bench, what, how) for how in hows}
            for what in ("clusters", "runs")
        },
        "most_overdue_seen_s": {k: round(v, 3) for k, v in bench.most_overdue_s.items()},
        "processor_share": {
            name: round((after[name] - before[name]) / seconds, 3) for name in processes
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--keep-logs", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, servers(Path(name)) as (postgres, valkey):
        migrate(postgres.url())
        plain = postgres.url(driver="postgresql")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(TABLE)
            connection.execute(MEASURE)
            database = Database(postgres.url())
            bench = Bench(postgres.url(), valkey.url, Path(name), database, connection, "")
            # Without an API process that could send the plan, no run gets a cluster.
            api = Api(postgres.url())
            api.comes()
            try:
                found = measure(bench, given)
            finally:
                api.goes()
                database.close()
                if given.keep_logs:
                    given.keep_logs.mkdir(exist_ok=True)
                    for log in Path(name).glob("*.log"):
                        (given.keep_logs / log.name).write_bytes(log.read_bytes())
    print(json.dumps(found, indent=2))
    given.out.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(each.get("p99_s", BAR_S) < BAR_S for each in found["lag"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
