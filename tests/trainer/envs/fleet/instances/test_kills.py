"""Killed at a random moment, with a platform that carries creations out late: nothing is left.

The real platform server, real processes and the real sweep; `killed/` has the same in virtual time.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from hillclimb.protocol.rundir import AttemptDir, run_tag
from tests.fixtures.factories import make_spec
from tests.trainer.envs.fleet.instances.dying import run
from tests.trainer.envs.fleet_server import API_KEY, HEADERS, SETTINGS, fleet_server_thread
from tests.trainer.fixtures.forked import run_forked
from trainer.envs.fleet.sweep import sweep_run

pytestmark = pytest.mark.long
SECONDS, LATE_S = 45.0, 1.5
RULES = [
    {"on": ["create"], "late_s": LATE_S, "latency_s": 0.2},
    {"on": ["reset", "verify", "delete", "tool_list"], "latency_s": 0.15},
    {"on": ["create", "delete"], "lost_reply_rate": 0.1},
]


_log = logging.getLogger(__name__)


def running(server: httpx.Client) -> int:
    count: int = server.get("/admin/stats").raise_for_status().json()["instances"]["running"]
    return count


def test_no_kill_leaves_an_instance_after_the_next_sweep(tmp_path: Path) -> None:
    rng = random.Random(20)
    ends_at, num_kills, num_late = float("inf"), 0, 0
    with (
        fleet_server_thread(replace(SETTINGS, tasks_per_env=8)) as url,
        httpx.Client(base_url=url, headers=HEADERS) as server,
    ):
        server.put("/admin/faults", json={"seed": 20, "rules": RULES}).raise_for_status()
        environ = {"FLEET_API_KEY": API_KEY, "FLEET_BASE_URL": url}
        while time.monotonic() < ends_at:
            num_kills += 1
            where = AttemptDir(tmp_path / "run_1", num_kills)
            where.path.mkdir(parents=True)
            spec = make_spec(environment={"provider": "fleet"})
            where.spec.write_text(json.dumps(spec.model_dump(mode="json")))
            tag = run_tag("run_1", num_kills)
            seconds = rng.uniform(0.1, 3.0)
            done = run_forked(run, [url, tag, str(seconds)], timeout_s=120.0)
            assert done.returncode == -signal.SIGKILL, done.stderr
            # The first start imports what the others are forked with.
            ends_at = min(ends_at, time.monotonic() + SECONDS)
            sweep_run(where.run_dir, num_kills, environ)
            # Nothing tells when the last creation of a dead process has been carried out.
            time.sleep(LATE_S + 0.3)
            num_late += running(server) > 0
            sweep_run(where.run_dir, num_kills, environ)
            assert running(server) == 0
        created = server.get("/admin/stats").json()["instances"]["created"]
    assert created > num_kills
    _log.info("%d kills, %d instances, %d times late ones", num_kills, created, num_late)
