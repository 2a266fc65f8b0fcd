"""CPU time of the requests of idle runners, and what a thousand of them cost.

    .venv/bin/python -m benchmarks.service.load.idle_runners [--baseline CHECKOUT] [--requests N]

PostgreSQL and one API process of each checkout, as in `posts`; 1,000 runners of one project are
registered, of which one sends heartbeats and claims in turns. `cores` is what all of them take by
the intervals that the service tells them: heartbeats, and claims where the service does not say
whether anything waits. Writes `benchmarks/results/idle_runners.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.service.load.posts import Submitting
from benchmarks.service.outcomes import ROOT, postgres
from benchmarks.service.processes import tree_s
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import stop
from worker.runner.runner import CLAIM_INTERVAL_S

RESULT = ROOT / "benchmarks" / "results" / "idle_runners.json"
TOKEN = "hcr_a-runner-token-for-loopback-that-is-long-enough"
NUM = 1_000
COPIES = """
INSERT INTO runners (id, project_id, name, slots, hostname, draining, lease_until, registered_at)
SELECT 'rnr_copy' || n, project_id, 'copy-' || n, 1, 'box', false, now() + interval '1 day', now()
FROM runners, generate_series(1, %s) n WHERE name = %s ON CONFLICT DO NOTHING
"""


def measure(side: Submitting, requests: int, url: str, postmaster: int) -> dict[str, Any]:
    """Register a runner and its copies; return milliseconds of CPU for each kind of request."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    name = side.process.pid
    with side.client() as client:
        client.headers.update(headers)
        body = {"name": f"bench-{name}", "hostname": "box"}
        registered = client.post("/v1/runners", json=body).raise_for_status().json()
        path = f"/v1/runners/{registered['runner_id']}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(COPIES, (NUM - 1, f"bench-{name}"))
        found: dict[str, Any] = {}
        for kind, sent in (("heartbeat", {"attempts": []}), ("claim", None)):
            for num in (requests // 5, requests):
                api, database = side.cpu_s(), tree_s(postmaster)
                for _ in range(num):
                    answer = client.post(f"{path}/{kind}", json=sent).raise_for_status()
            found[f"{kind}_api_ms"] = 1e3 * (side.cpu_s() - api) / requests
            found[f"{kind}_postgres_ms"] = 1e3 * (tree_s(postmaster) - database) / requests
            if kind == "heartbeat":
                interval_s = answer.json().get("heartbeat_interval_s")
    beat_s = interval_s or registered["heartbeat_interval_s"]
    claims = 0.0 if interval_s else 1 / CLAIM_INTERVAL_S
    cost = found["heartbeat_api_ms"] / beat_s + claims * found["claim_api_ms"]
    found |= {"requests_per_s": NUM * (1 / beat_s + claims), "cores": NUM * cost / 1e3}
    return {key: round(value, 2) for key, value in found.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    checkouts = {"here": ROOT} | ({"baseline": options.baseline} if options.baseline else {})
    os.environ["HILLCLIMB_RUNNER_TOKEN"] = TOKEN
    load, facts = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory(prefix="hillclimb-idle-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            migrate(server.url())
            postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
            url = server.url(driver="postgresql")
            for side, checkout in checkouts.items():
                api = Submitting(checkout.resolve(), folder, server.url(), "redis://127.0.0.1:1")
                try:
                    facts[side] = measure(api, options.requests, url, postmaster)
                finally:
                    stop(api.process)
                print(side, facts[side], flush=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}"
    options.out.write_text(json.dumps({**facts, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
