"""Two real processes of the API behind one address, and clients of a particular one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free

ROOT = Path(__file__).parents[5]
KEY = "hck_" + "k" * 40
METRICS_TOKEN = "metrics-token-of-the-operator-0123456789"
START_S = 60.0


@dataclass(slots=True, kw_only=True)
class TwoProcesses:
    """The parent and where it listens."""

    parent: subprocess.Popen[bytes]
    port: int
    log: Path
    shared: Path
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """The processes that serve, without multiprocessing's own tracker."""
        children = psutil.Process(self.parent.pid).children()
        return sorted(each.pid for each in children if _serves(each))

    def is_ready(self) -> bool:
        """Whether a process serves."""
        with suppress(httpx.TransportError):
            return self.browser().get("/v1/health/ready").is_success
        return False

    def client(self, pid: int, key: str = KEY) -> httpx.Client:
        """Return a client whose connection this process has accepted."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            client = self.browser(key)
            with suppress(httpx.TransportError):  # none listens yet, or it is being stopped
                if self.accepted_by(client) == pid:
                    return client
            client.close()
            time.sleep(0.01)
        raise AssertionError(f"process {pid} accepts no connection: {self.log.read_text()[-3000:]}")

    def both(self, key: str = KEY) -> tuple[httpx.Client, httpx.Client]:
        """Return a client of each process."""
        assert wait_until(lambda: len(self.pids()) == 2, deadline_s=START_S), self.log.read_text()
        first, second = self.pids()
        return self.client(first, key), self.client(second, key)

    def browser(self, key: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=20, verify=False)
        self.clients.append(client)
        return client

    def accepted_by(self, client: httpx.Client) -> int | None:
        """Return the process at the other end of the client's connection, which it opens."""
        answer = client.get("/v1/health")
        host, port = answer.extensions["network_stream"].get_extra_info("client_addr")
        for pid in self.pids():
            for each in psutil.Process(pid).net_connections("tcp"):
                if each.raddr and (each.raddr.ip, each.raddr.port) == (host, port):
                    return pid
        return None


def _serves(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


@contextmanager
def two_processes(
    database_url: str, redis_url: str, folder: Path, **more: str
) -> Iterator[TwoProcesses]:
    """Serve until the block ends; `more` are further environment variables."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = find_free(), folder / "api.log"
    variables = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "HILLCLIMB_BLOBS_URL": str(folder / "blobs"),
        "HILLCLIMB_SECRET_KEY": "a-secret-for-tests-that-is-long-enough",
        "HILLCLIMB_BOOTSTRAP_KEY": KEY,
        "HILLCLIMB_METRICS_TOKEN": METRICS_TOKEN,
        "HILLCLIMB_API_PROCESSES": "2",
        "HILLCLIMB_API_URL": f"http://127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "api.http.live.serving", "--port", str(port)]
    command += ["--log-level", "warning", "--shared", str(folder / "shared")]
    with log.open("ab") as output:
        parent = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **variables, **more},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    two = TwoProcesses(parent=parent, port=port, log=log, shared=folder / "shared")
    try:
        yield two
    finally:
        for client in two.clients:
            client.close()
        parent.terminate()
        parent.wait(30)
