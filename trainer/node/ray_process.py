"""This machine's part of the gang's Ray: a child in a session of its own, ended by its mark.

Never `ray stop`, which ends every Ray of the user on the machine, SkyPilot's own with it.
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

from trainer.handover.ending import log_tail
from trainer.handover.masking import Mask
from trainer.handover.processes import TrainerProcess, start_detached
from trainer.node.environment import marked, of_ray
from trainer.node.settings import NodeSettings

log = logging.getLogger(__name__)

END_S = 10.0
CONNECT_S = 2.0
LEAST_STORE_BYTES, MOST_STORE_BYTES = 100 * 1024**2, 2 * 1024**3
"""Batches and rollouts pass through the object store, weights do not; Ray refuses one below 75 MB,
and puts it on the disk where shared memory is smaller."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Ray has its object store
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray refuses to join a cluster on a loopback address without it, on Linux too."""


@dataclass(slots=True, kw_only=True)
class RayChild:
    """`ray start --block` on this machine: the head on the first, members on the others."""

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    process: TrainerProcess | None = None

    @property
    def address(self) -> str:
        """Where the cluster is joined."""
        return f"{self.settings.gang.head_ip}:{self.settings.ray_port}"

    @property
    def said(self) -> str:
        """The last lines of what Ray said here."""
        return log_tail(self._log, Mask.of(self.environ))

    def start(self) -> None:
        """Start it; it takes seconds until it answers. Raises OSError."""
        _make_own(self._folder)
        environment = marked(self.environ, self.settings) | of_ray(self.settings) | {CLUSTERS: "1"}
        self.process = start_detached(
            self._command(), cwd=self.settings.own_dir, environment=environment, log=self._log
        )

    def is_running(self) -> bool:
        """Whether the child is there."""
        return self.process is not None and self.process.running()

    def answers(self) -> bool:
        """Whether the cluster's head accepts connections."""
        gang = self.settings.gang
        try:
            with socket.create_connection((gang.head_ip, self.settings.ray_port), CONNECT_S):
                return True
        except OSError:
            return False

    def refuses(self) -> bool:
        """Whether the head's machine is there, and nobody listens on it: its Ray has ended."""
        gang = self.settings.gang
        try:
            socket.create_connection((gang.head_ip, self.settings.ray_port), CONNECT_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    def end(self) -> None:
        """End the child and its own; whoever is left is found by the mark."""
        if self.process is not None:
            self.process.terminate()
            deadline = time.monotonic() + END_S
            while self.process.running() and time.monotonic() < deadline:
                time.sleep(0.1)
            self.process.kill()

    def remove(self) -> None:
        """Delete its files, once nobody works with them."""
        if _is_own(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        """Short: it ends up in names of sockets (107 characters)."""
        which = hashlib.sha256(str(self.settings.own_dir).encode()).hexdigest()[:8]
        return Path("/tmp") / f"hcr-{which}"  # noqa: S108 - as above

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
            # Ray opens the folder it is given to everybody.
            *("--temp-dir", str(self._folder / "r"), "--disable-usage-stats"),
            # Nobody asks the agent anything, and SkyPilot's own Ray has its usual port.
            *("--dashboard-agent-listen-port", "0"),
        )


def _make_own(folder: Path) -> None:
    """Make a folder that is ours alone: its name is known to others on the machine beforehand.

    Raises OSError.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_own(folder):
        raise PermissionError(errno.EPERM, "somebody else's folder is in the place", str(folder))
    folder.chmod(0o700)


def _is_own(folder: Path) -> bool:
    """Whether it is a folder, no link to one, and ours."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _store_bytes() -> int:
    """A quarter of the shared memory that is free, within bounds."""
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    return max(LEAST_STORE_BYTES, min(MOST_STORE_BYTES, free // 4))
