"""A thousand runs at once on scripted clouds, in virtual time: faults, invariants, ends.

    .venv/bin/python -m benchmarks.clusters.simulate [--runs 1000] [--seed 1] [--step 10]

The service's own code on a real PostgreSQL: what the clock's rounds send is carried out by the
worker's functions, except that messages are lost and come twice, and ticks are cut off before or
after any call. Clouds, nodes and users are scripts. Invariants are checked at every virtual step;
one that breaks ends the program. Writes `benchmarks/results/clusters_simulation.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import func, select

from api.admission.submit import submit
from api.clusters import budgets
from api.clusters.names import deployment_tag, prefix
from api.clusters.store import ClusterState
from api.notices.deliver import Delivery
from api.runs.status import TERMINAL, RunStatus
from api.tables import Cluster, LaunchTry, OrphanedCluster, Project, ProjectLimits, Run
from api.tables.database import Database
from benchmarks.clusters.faulty import FaultyClouds
from benchmarks.clusters.world import World
from hillclimb.blobs.disk import DiskStore
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import start_test_postgres
from tests.worker.api_presence import Api
from tests.worker.clusters.cluster_simulation import ClusterSimulation, cluster_spec
from tests.worker.clusters.scripted import START
from tests.worker.clusters.scripted import Cluster as Rented
from tests.worker.run_simulation import PROJECT
from worker.clusters import observer, reconciler
from worker.context import WorkerContext
from worker.runs import driver, reaper, spending, sweeps
from worker.skypilot.port import ErrorKind

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks/results/clusters_simulation.json"
AWAY = ((1800.0, 2400.0),)
"""When the API server does not answer (virtual seconds): ten minutes."""
RESTARTS = (900.0, 3000.0, 5400.0)
"""When it is started again and has forgotten its requests."""
LOST, TWICE, CUT_OFF, SWEEP_LOST = 0.05, 0.05, 0.02, 0.02
"""Chances: a message is lost, or comes twice; a tick is cut off; a round of the clock is lost."""
TIDY_EVERY = 60
"""Virtual steps between what PostgreSQL's autovacuum does: the tests' server has it switched off,
and a table of a thousand rows that each step writes anew is a hundred times as large soon."""
STRAYS, FOREIGN = 20, 5
STRAYS_AT = 1200.0
LIMIT_S = 16 * 3600.0
HURRY = {"poor": 0.08, "short": 0.03, "barren": 0.01, "refused": 0.01}
"""Shares of runs with a budget too small, clusters of 15 minutes, no capacity ever, no right."""


class Killed(Exception):
    """The worker's process is gone."""


@dataclass(slots=True)
class Simulation:
    """`kinds` says what is special about a run."""

    world: World
    ours: str
    rng: random.Random
    plain_url: str
    """Of the database, as psycopg has it."""
    kinds: dict[str, str] = field(default_factory=dict)
    plans: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By run: what its user does, and when (virtual seconds)."""
    counts: Counter[str] = field(default_factory=Counter)
    num_checks: int = 0
    max_live: int = 0
    steps: int = 0

    @property
    def clouds(self) -> FaultyClouds:
        return self.world.clouds

    @property
    def context(self) -> WorkerContext:
        return self.world.context

    @property
    def passed_s(self) -> float:
        return (self.clouds.now - START).total_seconds()

    def submit(self, number: int) -> None:
        """Submit a run; its kind, length and user are drawn."""
        drawn, kind = self.rng.random(), "plain"
        for name, share in HURRY.items():
            drawn -= share
            if drawn < 0.0:
                kind = name
                break
        sections: dict[str, Any] = {}
        if kind == "poor":
            sections["budget"] = {"usd": 2.0}
        spec = cluster_spec(f"run {number}", **sections)
        if kind == "short":
            told = spec.model_dump(mode="json")
            told["backend"]["skypilot"]["max_hours"] = 0.25
            spec = type(spec).model_validate(told)
        with self.context.database.transaction() as session:
            run = submit(session, spec, project_id=PROJECT, actor="key:u", now=self.clouds.now)
        self.kinds[run.id] = kind
        self.world.total[run.id] = self.rng.randint(10, 45)
        cluster = f"{self.ours}{run.id[-10:]}"
        if kind == "barren":
            self.clouds.never[cluster] = ErrorKind.NO_CAPACITY
        elif kind == "refused":
            self.clouds.never[cluster] = ErrorKind.REFUSED
        drawn = self.rng.random()
        if drawn < 0.06:
            what = "cancel" if drawn < 0.03 else "pause"
            self.plans[run.id] = (self.passed_s + self.rng.uniform(0.0, 3600.0), what)

    def advance(self, step_s: float) -> None:
        """One virtual step: time, clouds, nodes, users, the clock's rounds, the invariants."""
        before = self.passed_s
        self.clouds.pass_time(step_s)
        now_s = self.passed_s
        away = any(begin <= now_s < end for begin, end in AWAY)
        if away != self.clouds.is_away:
            self.clouds.is_away = away
            self.counts["API server away for 10 minutes"] += away
        if any(before < at <= now_s for at in RESTARTS):
            self.clouds.restart_server()
            self.counts["API server restarted, requests forgotten"] += 1
        if before < STRAYS_AT <= now_s:
            for i in range(STRAYS + FOREIGN):
                name = f"{self.ours if i < STRAYS else 'hc-zzzz-'}nobody{i:04d}-1"
                self.clouds.clusters[name] = Rented(name)
        self.world.act(step_s)
        self._users()
        self._clock(before, now_s)
        self.check()
        self.steps += 1

    def _users(self) -> None:
        for run_id, (at, what) in list(self.plans.items()):
            if at > self.passed_s:
                continue
            if self.world.user(run_id, what) and what == "pause":
                self.plans[run_id] = (self.passed_s + 900.0, "resume")
            elif what == "resume" and self.status(run_id) is RunStatus.PAUSING:
                self.plans[run_id] = (self.passed_s + 60.0, "resume")
            else:
                del self.plans[run_id]

    def _clock(self, before: float, now_s: float) -> None:
        now = self.clouds.now
        if self._rings(before, now_s, 15.0):
            observer.sweep(self.context, self.clouds, now=now)
            spending.sweep(self.context, now=now)
        if self._rings(before, now_s, 30.0):
            reaper.sweep(self.context, now=now)
        if self._rings(before, now_s, 2.0):
            self._send(sweeps.runs(self.context, now=now), self._tick_run)
        if self._rings(before, now_s, 2.0):
            self._send(sweeps.clusters(self.context, now=now), self._tick_cluster)

    def _rings(self, before: float, now_s: float, period_s: float) -> bool:
        if int(before / period_s) == int(now_s / period_s):
            return False
        if self.rng.random() < SWEEP_LOST:
            self.counts["round lost"] += 1
            return False
        return True

    def _send(self, ids: Any, tick: Callable[[str], None]) -> None:
        messages = []
        for each in ids:
            drawn = self.rng.random()
            if drawn < LOST:
                self.counts["tick lost"] += 1
                continue
            messages.append(each)
            if drawn < LOST + TWICE:
                self.counts["tick duplicated"] += 1
                messages.insert(self.rng.randrange(len(messages)), each)
        for each in messages:
            tick(each)

    def _tick_run(self, run_id: str) -> None:
        self.counts["ticks of runs"] += 1
        driver.reconcile(self.context, run_id, must_be_due=True, clock=lambda: self.clouds.now)

    def _tick_cluster(self, cluster_id: str) -> None:
        self.counts["ticks of clusters"] += 1
        left = self.rng.randrange(4) if self.rng.random() < CUT_OFF else None
        whole, is_after = reconciler.execute, self.rng.random() < 0.5

        def execute(*arguments: Any) -> Any:
            nonlocal left
            if left is None or left > 0:
                left = None if left is None else left - 1
                return whole(*arguments)
            if is_after:
                whole(*arguments)
            raise Killed

        reconciler.execute = execute
        try:
            reconciler.reconcile(
                self.context, self.clouds, cluster_id, clock=lambda: self.clouds.now
            )
        except Killed:
            self.counts["worker killed between call and record"] += 1
        finally:
            reconciler.execute = whole

    def tidy(self) -> None:
        """Take away the remains of old rows, and count the new ones for the planner."""
        with psycopg.connect(self.plain_url, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")

    def check(self) -> None:
        """At most one cluster or launch of each run; none of a row that is gone."""
        self.num_checks += 1
        clouds = self.clouds
        working = [r for r in (*clouds.requests, *clouds.orphans) if r.state.value == "working"]
        live = {name for name in clouds.clusters if name.startswith(self.ours)}
        live |= {request.name for request in working}
        per_run = Counter(name.rpartition("-")[0] for name in live)
        twice = [run for run, number in per_run.items() if number > 1]
        assert not twice, f"two clusters at {self.passed_s:.0f} s: {twice}"
        assert clouds.max_open <= 1, "two launches of one name under way"
        self.max_live = max(self.max_live, sum("-nobody" not in name for name in live))
        known = select(Cluster.name).where(Cluster.name.in_(live))
        with self.context.database.transaction() as session:
            gone = session.scalars(
                known.where(Cluster.state == ClusterState.TERMINATED.value)
            ).all()
        assert not gone, f"gone in the database, there in the clouds: {gone}"
        clouds.requests = [r for r in clouds.requests if r in working or self._is_new(r.ends_at)]

    def _is_new(self, ended: Any) -> bool:
        return bool(ended > self.clouds.now - timedelta(hours=1))

    def status(self, run_id: str) -> RunStatus:
        with self.context.database.transaction() as session:
            return RunStatus(session.get_one(Run, run_id).status)

    def is_over(self) -> bool:
        """Whether every run has ended or rests for good, and nothing is rented any more."""
        still = [s.value for s in TERMINAL | {RunStatus.PAUSED}]
        runs = select(func.count()).select_from(Run).where(Run.status.not_in(still))
        rented = select(func.count()).select_from(Cluster)
        with self.context.database.transaction() as session:
            if session.scalar(runs):
                return False
            left = session.scalar(rented.where(Cluster.state != ClusterState.TERMINATED.value))
        ours = [name for name in self.clouds.clusters if name.startswith(self.ours)]
        return not left and not ours and not self.plans


def ends(simulation: Simulation) -> dict[str, int]:
    """Count runs by how they ended: status and reason."""
    query = select(Run.status, Run.end_code, func.count()).group_by(Run.status, Run.end_code)
    with simulation.context.database.transaction() as session:
        found = session.execute(query).all()
    return {f"{status}: {code}": number for status, code, number in sorted(found)}


def report(simulation: Simulation, given: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What was done to the service, and what became of it."""
    with simulation.context.database.transaction() as session:
        made = session.scalar(select(func.count()).select_from(Cluster))
        left = session.scalar(
            select(func.count()).select_from(Cluster).where(Cluster.state != "terminated")
        )
        offers = session.scalar(select(func.count()).select_from(LaunchTry))
        orphans = session.scalar(select(func.count()).select_from(OrphanedCluster))
    faults = simulation.clouds.faults + simulation.world.counts + simulation.counts
    there = [name for name in simulation.clouds.clusters if name.startswith(simulation.ours)]
    return {
        "runs": given.runs,
        "seed": given.seed,
        "step_s": given.step,
        "virtual_hours": round(simulation.passed_s / 3600.0, 2),
        "seconds": round(seconds, 1),
        "processor_seconds": round(time.process_time(), 1),
        "cores": os.cpu_count(),
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "checks": simulation.num_checks,
        "most_clusters_at_once": simulation.max_live,
        "most_launches_of_a_name_at_once": simulation.clouds.max_open,
        "launches": simulation.clouds.num_launches,
        "clusters_made": made,
        "clusters_left_in_the_database": left,
        "clusters_left_in_the_clouds": len(there),
        "strays_put_there": STRAYS,
        "strays_left": orphans,
        "foreign_left_alone": len(simulation.clouds.clusters) - len(there),
        "ledger_rows": offers,
        "events": dict(sorted(faults.items())),
        "ends": ends(simulation),
    }


def run(given: argparse.Namespace, url: str, folder: Path) -> dict[str, Any]:
    """Simulate until all is over, or too long."""
    rng = random.Random(given.seed)
    database = Database(url)
    delivery = Delivery(database=database, slack=None, public_url="http://127.0.0.1:1")
    bare = WorkerContext(
        database=database, store=DiskStore(folder / "blobs"), owner="simulation", delivery=delivery
    )
    api = Api(url)
    api.comes()
    sim = ClusterSimulation.of(bare, api, folder)
    clouds = FaultyClouds(rng=rng)
    cloud_provider = replace(sim.context.cloud_provider, clouds=lambda: clouds)  # type: ignore[type-var]
    context = replace(sim.context, cloud_provider=cloud_provider)
    with database.transaction() as session:
        session.add(Project(id=PROJECT, name="simulation"))
        session.flush()
        budgets.set_limits(
            session,
            ProjectLimits(project_id=PROJECT, max_clusters=given.runs, since=START, set_by="u"),
        )
        ours = prefix(deployment_tag(session))
    plain_url = url.replace("+psycopg", "")
    simulation = Simulation(World(context, clouds, rng), ours, rng, plain_url)
    begun = told = time.monotonic()
    for number in range(given.runs):
        simulation.submit(number)
    simulation.tidy()
    while simulation.passed_s < LIMIT_S:
        is_busy = simulation.world.nodes or not simulation.max_live
        simulation.advance(given.step if is_busy else 3.0 * given.step)
        if simulation.steps % TIDY_EVERY == 0:
            simulation.tidy()
        if simulation.steps % 6 == 0 and simulation.is_over():
            break
        if time.monotonic() - told > 20.0:
            told = time.monotonic()
            took = f"{told - begun:.0f} s, {time.process_time():.0f} s of a processor"
            print(f"{simulation.passed_s:.0f} s ({took}): {ends(simulation)}", flush=True)
    found = report(simulation, given, time.monotonic() - begun)
    api.goes()
    database.close()
    assert simulation.is_over(), json.dumps(found, indent=2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    server = start_test_postgres()
    try:
        url = server.create_database()
        migrate(url)
        with tempfile.TemporaryDirectory() as folder:
            found = run(given, url, Path(folder))
    finally:
        server.stop()
    print(json.dumps(found, indent=2))
    given.out.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
