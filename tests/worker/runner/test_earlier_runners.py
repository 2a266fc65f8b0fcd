"""Runners of earlier versions, as git has them, against the service of today."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from api.runs.journal import utc_now
from api.runs.status import RunStatus
from api.tables.access.identity import RUNNER_SCOPES
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from tests.api.fixtures.serving import serve
from tests.api.http.access.conftest import make_key
from tests.fixtures.migrated import ROOT
from tests.worker.run_simulation import PROJECT, RunSimulation
from tests.worker.runner.bench import Bench

EARLIER = {
    "041cea10": "the first that leaves out what it does not know",
    "c0152366": "the last that sends heartbeats and claims at a pace of its own",
}
"""Commits of released versions; their schemas are 1027 and 1033."""
PATIENCE_S = 120.0


@pytest.fixture(params=EARLIER)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    code = tmp_path / "earlier"
    code.mkdir()
    archive = ["git", "archive", request.param, "hillclimb", "worker"]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"this checkout has no commit {request.param}")
    subprocess.run(["tar", "x", "-C", str(code)], input=packed.stdout, check=True)
    made = Bench(
        folder=tmp_path, url="", token="", code=code, environment={"PYTHONPATH": str(code)}
    )
    made.prepare()
    yield made
    made.clean()


@pytest.mark.long
@pytest.mark.usefixtures("api")
def test_a_run_goes_through_a_runner_of_an_earlier_version(
    bench: Bench, sim: RunSimulation, database: Database, database_url: str
) -> None:
    bench.token = make_key(database, RUNNER_SCOPES, project_id=PROJECT)
    run = replace(sim, context=replace(sim.context, store=DiskStore(bench.blobs)), now=utc_now())
    with serve(database_url, database, bench.blobs) as served:
        bench.url = served.url
        bench.start()
        run_id = run.submit()

        def is_over() -> bool:
            run.now = utc_now()
            run.reconcile(run_id)
            return run.status(run_id) is RunStatus.SUCCEEDED

        bench.until(is_over, deadline_s=PATIENCE_S)
    types = run.types(run_id)
    assert types.count("step.completed") == 3
    assert run.run(run_id).attempt == 1
