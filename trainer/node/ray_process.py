"""This machine's process of the gang's Ray: a child in its own session, found by its mark.

Never `ray stop`, which ends every Ray of the user on the machine, SkyPilot's own included.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.process.exit_report import log_tail
from hillclimb.process.identity import TrainerProcess, start_detached
from hillclimb.process.redactor import Redactor
from trainer.attempt.scratch import SHARED_MEMORY
from trainer.node.environment import ray_variables, with_mark
from trainer.node.settings import NodeSettings

log = logging.getLogger(__name__)

STOP_S = 10.0
CONNECT_S = 2.0
MIN_STORE_BYTES, MAX_STORE_BYTES = 100 * 1024**2, 2 * 1024**3
"""Of Ray's object store, through which batches and rollouts pass, but no weights. Ray refuses one
below 75 MB, and uses the disk where shared memory is smaller."""
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Without it Ray refuses to join a cluster on a loopback address, on Linux too."""


@dataclass(slots=True, kw_only=True)
class RayProcess:
    """`ray start --block`: the cluster's head on the first machine, a member on the others."""

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    process: TrainerProcess | None = None

    @property
    def address(self) -> str:
        """Address of the cluster's head."""
        return f"{self.settings.gang.head_ip}:{self.settings.ray_port}"

    @property
    def log_tail(self) -> str:
        """The last lines of Ray's log on this machine, redacted."""
        return log_tail(self._log, Redactor.of(self.environ))

    def start(self) -> None:
        """Start Ray, which answers after some seconds. Raises OSError."""
        _make_own(self._folder)
        environment = (
            with_mark(self.environ, self.settings) | ray_variables(self.settings) | {CLUSTERS: "1"}
        )
        self.process = start_detached(
            self._command(), cwd=self.settings.own_dir, environment=environment, log=self._log
        )

    def is_running(self) -> bool:
        """True while the child runs."""
        return self.process is not None and self.process.running()

    def is_head_up(self) -> bool:
        """True where the cluster's head accepts connections."""
        gang = self.settings.gang
        try:
            with socket.create_connection((gang.head_ip, self.settings.ray_port), CONNECT_S):
                return True
        except OSError:
            return False

    def is_head_refusing(self) -> bool:
        """True where the head's machine answers and refuses connections: its Ray has exited."""
        gang = self.settings.gang
        try:
            socket.create_connection((gang.head_ip, self.settings.ray_port), CONNECT_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    def stop(self) -> None:
        """Stop the child; `kill_marked` finds children of it that remain."""
        if self.process is not None:
            self.process.terminate()
            deadline = time.monotonic() + STOP_S
            while self.process.running() and time.monotonic() < deadline:
                time.sleep(0.1)
            self.process.kill()

    def delete_files(self) -> None:
        """Delete Ray's files; call it after the last process has exited."""
        if _is_own(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        """Ray's folder. Its path is short, because sockets' paths have at most 107 characters."""
        digest = hashlib.sha256(str(self.settings.own_dir).encode()).hexdigest()[:8]
        return Path("/tmp") / f"hcr-{digest}"  # noqa: S108 - as above

    @property
    def _log(self) -> Path:
        return self.settings.own_dir / "ray.log"

    def _command(self) -> tuple[str, ...]:
        settings = self.settings
        cpus = ("--num-cpus", str(settings.num_cpus)) if settings.num_cpus is not None else ()
        part = (
            ("--address", self.address)
            if not settings.gang.is_head
            else (
                *("--head", "--port", str(settings.ray_port), "--include-dashboard", "false"),
                *("--ray-client-server-port", str(settings.ray_port + 1)),
            )
        )
        return (
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *part, *cpus),
            *("--node-ip-address", settings.gang.own_ip, "--num-gpus", str(settings.gang.num_gpus)),
            *("--object-store-memory", str(_store_bytes())),
            # Ray makes its folder readable for all accounts, so it gets a folder inside ours.
            *("--temp-dir", str(self._folder / "r"), "--disable-usage-stats"),
            # The agent is unused here, and SkyPilot's own Ray has its default port.
            *("--dashboard-agent-listen-port", "0"),
        )


def _make_own(folder: Path) -> None:
    """Create a private folder; another account could have made one of that name. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_own(folder):
        raise PermissionError(errno.EPERM, "the folder belongs to another account", str(folder))
    folder.chmod(0o700)


def _is_own(folder: Path) -> bool:
    """True for a folder of our account that is no link."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _store_bytes() -> int:
    """Return a quarter of the free shared memory, within bounds."""
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    return max(MIN_STORE_BYTES, min(MAX_STORE_BYTES, free // 4))
