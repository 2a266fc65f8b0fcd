"""The time to the first contentful paint of the list of runs, with 10,000 runs in the project.

    PYTHONPATH=.playwright .venv/bin/python -m benchmarks.service.first_paint [--out FILE]

`tests/e2e/browser/install.sh` installs Chromium and Playwright. Four runs are ingested by the
service's own code: one that improved, one without a gradient, one that failed, one under way. SQL
copies their rows until there are 10,000 runs, their outcomes for the newest 200 alone: the list and
its verdicts read no others. The API is a process as the stack starts it, over
PostgreSQL with its default settings. A cold load has a new API process, a new Chromium and an empty
cache; a warm one opens the page again in the same tab. Times are Chromium's own
(`PerformancePaintTiming`), from the start of the navigation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from api.runs import store
from api.scheduling.advance import advance
from api.tables.database import Database
from benchmarks.service.outcomes import postgres
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.api.fixtures.serving import make_key
from tests.api.fixtures.story import ENVS, PROJECT, Story, spec
from tests.e2e.browser.chromium import awaited, launched, new_context
from tests.fixtures.migrated import migrate

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "first_paint.json"
NUM_RUNS, LOADS = 10_000, 5
LIMIT_MS = 1000.0
STEPS, EVAL_TASKS = 6, 20
COPIED = ("events", "evals", "step_signals", "metrics", "outcomes")
"""Tables with rows of runs that the list and its verdicts read."""
WITH_OUTCOMES = 200
TIMES = """() => {
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  const [load] = performance.getEntriesByType("navigation");
  return paint && load.loadEventEnd
    ? { paint_ms: paint.startTime, answer_ms: load.responseStart, html_bytes: load.encodedBodySize }
    : null;
}"""


def tell(database: Database) -> list[str]:
    """Ingest the four runs; return their ids."""
    story = Story(database)
    story.prepare()
    ids = []
    for name, before, after in (("climbs", 0.2, 0.8), ("stuck", 0.0, 0.0), ("fails", 0.3, 0.3)):
        run_id = story.running(spec(name))
        story.push(
            run_id, story.evaluation(run_id, 0, dict.fromkeys(ENVS, before), tasks=EVAL_TASKS)
        )
        for step in range(1, STEPS + 1):
            story.push(run_id, story.step(run_id, step, dict.fromkeys(ENVS, before)))
        last = story.evaluation(run_id, STEPS, dict.fromkeys(ENVS, after), tasks=EVAL_TASKS)
        story.push(run_id, last)
        reason = ReasonCode.SPEC_REJECTED if name == "fails" else ReasonCode.COMPLETED
        story.finish(run_id, STEPS, reason)
        with database.transaction() as session:
            advance(session, store.lock_run(session, run_id), now=story.now)
        ids.append(run_id)
    moving = story.running(spec("moves"))
    story.push(moving, story.evaluation(moving, 0, dict.fromkeys(ENVS, 0.4), tasks=EVAL_TASKS))
    return [*ids, moving]


def multiply(connection: psycopg.Connection[Any], originals: list[str]) -> None:
    """Copy the runs with all their rows until there are `NUM_RUNS`, a minute between two."""
    connection.execute(
        "CREATE TEMP TABLE copies AS SELECT number, 'run_copy' || lpad(number::text, 6, '0') AS id,"
        " (%s::text[])[1 + number %% %s] AS original FROM generate_series(1, %s) AS number",
        (originals, len(originals), NUM_RUNS - len(originals)),
    )
    own = {"id": "copies.id", "name": "runs.name || ' ' || number"}
    own["created_at"] = "runs.created_at - number * interval '1 minute'"
    _copy(connection, "runs", "id", own)
    for table in COPIED:
        own = {"run_id": "copies.id"}
        if table == "events":
            own["id"] = "events.id || '_' || number"
        newest = WITH_OUTCOMES if table == "outcomes" else NUM_RUNS
        _copy(connection, table, "run_id", own, newest=newest)
    connection.commit()
    connection.autocommit = True
    connection.execute("VACUUM ANALYZE")


def _copy(
    connection: psycopg.Connection[Any],
    table: str,
    key: str,
    own: Mapping[str, str],
    *,
    newest: int = NUM_RUNS,
) -> None:
    columns = [
        str(row[0])
        for row in connection.execute(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = %s AND table_schema = 'public' AND is_identity = 'NO'"
            " AND is_generated = 'NEVER'",
            (table,),
        )
    ]
    chosen = ", ".join(own.get(name, f'{table}."{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    connection.execute(
        f"INSERT INTO {table} ({names}) SELECT {chosen} FROM copies"
        f" JOIN {table} ON {table}.{key} = copies.original WHERE number <= {newest}"
    )


@contextmanager
def api(database_url: str, folder: Path) -> Iterator[str]:
    """Yield the address of a new API process."""
    port = find_free()
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1",  # nothing is submitted
        "HILLCLIMB_BLOBS_URL": str(folder / "blobs"),
        "HILLCLIMB_SECRET_KEY": "for this measurement only, and long enough",
        "HILLCLIMB_API_URL": url,
    }
    command = [sys.executable, "-m", "uvicorn", "api.app:create_app", "--factory"]
    with (folder / "api.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        if not wait_until(lambda: _answers(url), deadline_s=60.0):
            raise RuntimeError(f"the API did not start: {(folder / 'api.log').read_text()[-2000:]}")
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def signed_in(url: str, key: str) -> dict[str, Any]:
    """Return the state of a browser that is signed in, as Playwright stores it."""
    with httpx.Client(base_url=url, trust_env=False) as client:
        client.post("/login", data={"key": key, "next": "/"})
        cookies = [
            {"name": each.name, "value": each.value, "domain": "127.0.0.1", "path": "/"}
            | {"expires": -1, "httpOnly": True, "secure": False, "sameSite": "Strict"}
            for each in client.cookies.jar
        ]
    return {"cookies": cookies, "origins": []}


def cold_load(database_url: str, folder: Path, state: dict[str, Any]) -> dict[str, float]:
    """Load the list once, everything new."""
    with api(database_url, folder) as url, launched() as browser:
        page = new_context(browser, url=url, state=state).new_page()
        page.goto("/")
        return _times(page)


def warm_loads(database_url: str, folder: Path, state: dict[str, Any]) -> list[dict[str, float]]:
    """Load the list again and again in one tab; the first load does not count."""
    with api(database_url, folder) as url, launched() as browser:
        page = new_context(browser, url=url, state=state).new_page()
        page.goto("/")
        _times(page)
        return [_reloaded(page) for _ in range(LOADS)]


def _reloaded(page: Any) -> dict[str, float]:
    page.goto("/")
    return _times(page)


def _times(page: Any) -> dict[str, float]:
    assert page.locator("#rows tr").count() == 50
    found: dict[str, float] = awaited(page, TIMES)
    return found


def summary(loads: list[dict[str, float]]) -> dict[str, Any]:
    """Return the loads in milliseconds with their median and the worst."""
    paints = [round(load["paint_ms"], 1) for load in loads]
    answers = [load["answer_ms"] for load in loads]
    return {
        "paint_ms": paints,
        "median_ms": statistics.median(paints),
        "worst_ms": max(paints),
        "first_byte_median_ms": round(statistics.median(answers), 1),
        "html_kib": round(loads[-1]["html_bytes"] / 1024, 1),
    }


def main() -> int:
    """Measure, print, write; exit code 1 when a load takes longer than the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="hillclimb-paint-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            migrate(server.url())
            database = Database(server.url())
            originals = tell(database)
            key = make_key(database, PROJECT)
            database.close()
            with psycopg.connect(server.url(driver="postgresql")) as connection:
                multiply(connection, originals)
                counted = connection.execute("SELECT count(*) FROM runs").fetchone()
            with api(server.url(), folder) as url:
                state = signed_in(url, key)
            cold = [cold_load(server.url(), folder, state) for _ in range(LOADS)]
            warm = warm_loads(server.url(), folder, state)
    found = {
        "runs": counted[0] if counted else 0,
        "limit_ms": LIMIT_MS,
        "cold": summary(cold),
        "warm": summary(warm),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}",
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 1 if max(found["cold"]["worst_ms"], found["warm"]["worst_ms"]) > LIMIT_MS else 0


if __name__ == "__main__":
    sys.exit(main())
