"""SkyPilot's API server as a service of the embedded stack: started, killed, restarted, stopped."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.options import StackOptions
from hillclimb.stack.servers.sky import ENDPOINT_VARIABLE, queue_port
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import accepts
from hillclimb.stack.system.processes import owned_by

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.stack,
    pytest.mark.skipif(
        os.environ.get("HILLCLIMB_E2E") != "1", reason="minutes long: `make e2e` runs it"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("sky") is None, reason="SkyPilot is missing: `make setup`"
    ),
]
DEADLINE_S = 300.0


def group_of(leader: int) -> set[int]:
    """Pids of the processes in the group of `leader`."""
    found = set()
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader:
                found.add(process.pid)
        except ProcessLookupError:
            continue
    return found


def test_the_stack_has_an_api_server_of_its_own_and_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    state = tmp_path.resolve() / "state"
    options = StackOptions(state_dir=state, api_port=0, with_sky=True)
    said: list[str] = []
    try:
        up_detached(options, say=said.append, deadline_s=DEADLINE_S)
        record = status(state).services["sky-api"]
        port = status(state).ports["sky-api"]
        assert (record.state, record.port) == ("ready", port)
        answer = httpx.get(f"http://127.0.0.1:{port}/api/health", trust_env=False)
        assert answer.json()["version"] == "0.14.1"
        # Of those that are told: Celery's write their titles over their environment.
        api = status(state).services["api"].process
        assert api is not None
        told = psutil.Process(api.pid).environ()[ENDPOINT_VARIABLE]
        assert told == f"http://127.0.0.1:{port}"

        assert record.process is not None
        leader = record.process.pid
        assert wait_until(lambda: len(group_of(leader)) > 1, deadline_s=DEADLINE_S)
        os.kill(leader, signal.SIGKILL)

        def is_back() -> bool:
            now = status(state).services["sky-api"]
            return now.restarts == 1 and now.state == "ready"

        assert wait_until(is_back, deadline_s=DEADLINE_S), status(state).services["sky-api"]
        assert wait_until(lambda: group_of(leader) == set(), deadline_s=10)
        again = status(state).services["sky-api"].process
        assert again is not None
    finally:
        down(state, say=said.append)
    # Killed together, and gone when init has seen each.
    assert wait_until(lambda: group_of(again.pid) == set(), deadline_s=10)
    assert list(owned_by(state)) == []
    assert not accepts(port)
    assert not accepts(queue_port(port))
