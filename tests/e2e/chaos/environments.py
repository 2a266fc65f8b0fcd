"""The environment server of the runs of kind `fleet`, on a port that stays its own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from hillclimb.stack.options import CODE_ROOT
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import accepts, find_free
from tests.conformance.service import TRAINER_PYTHON

KEY = "chaos"
START_S = 60.0


@dataclass(slots=True)
class EnvironmentServer:
    """minifleet's server; its instances are in its memory, so a killed one forgets them."""

    log: Path
    port: int = field(default_factory=find_free)
    _popen: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> psutil.Process:
        assert self._popen is not None
        return psutil.Process(self._popen.pid)

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        if self._popen is not None:
            self._popen.wait(START_S)
        command = ("-m", "hillclimb.minifleet.server", "serve", "--port", str(self.port))
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(TRAINER_PYTHON), *command, "--api-key", KEY],
                cwd=CODE_ROOT,
                stdout=output,
                stderr=output,
            )
        assert wait_until(lambda: accepts(self.port), deadline_s=START_S), self.log.read_text()

    def close(self) -> None:
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait(START_S)

    def num_running(self) -> int:
        """Instances that nobody has deleted."""
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = httpx.get(f"{self.url}/admin/stats", headers=headers, trust_env=False)
        running: int = answer.raise_for_status().json()["instances"]["running"]
        return running
