"""`python -m tests.conformance.machine FOLDER REQUEST`: holds one cluster of `local_clouds`.

It is what init is on a rented machine: whatever is started on the cluster's nodes is its child in
the end, whoever forks away; when it is told to go, all of them are killed, and their disks deleted.
What a job leaves running when it ends is written into `left-NAME.txt`: a node gives its machine
back as it was.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

MARK = "HILLCLIMB_LOCAL_CLUSTER"
IPS = ("127.0.0.2", "127.0.0.3")
PR_SET_CHILD_SUBREAPER = 36
KILL_MASK = 1 << (signal.SIGKILL - 1)
"""The bit of SIGKILL in the signals of `/proc/PID/status` that wait for a process."""
PF_EXITING = 0x4
"""The kernel's flag, in `/proc/PID/stat`, of a process that it takes apart."""
KEPT = ("PATH", "LANG", "LC_ALL", "OMP_NUM_THREADS", "TMPDIR")
"""What a machine of its own would have too."""
TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """What is written down of one cluster, and its nodes' disks."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def body(self) -> dict[str, Any]:
        return read_json(self.path / "cluster.json") or {}

    def is_there(self) -> bool:
        return (self.path / "cluster.json").exists()

    def jobs(self) -> list[dict[str, Any]]:
        found = [read_json(path) for path in sorted(self.path.glob("job-*.json"))]
        return [body for body in found if body is not None]

    def home(self, rank: int) -> Path:
        return self.path / f"node-{rank}"

    def remove(self) -> None:
        (self.path / "cluster.json").unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(slots=True)
class Keeper:
    """Brings one launch to its end, then holds the machines until it is told to go."""

    folder: Path
    request_id: str
    leaving: bool = False
    cancelled: bool = False
    _nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def request(self) -> Path:
        return self.folder / "requests" / f"{self.request_id}.json"

    def run(self) -> None:
        body = read_json(self.request)
        assert body is not None, self.request_id
        cluster = Record(self.folder / "clusters" / body["name"])
        try:
            self._carry(body, cluster)
        except BaseException as fault:
            self._note(body, state="failed", message=repr(fault))
            raise
        finally:
            end_descendants()
            if self.leaving:
                cluster.remove()

    def _carry(self, body: dict[str, Any], cluster: Record) -> None:
        while (self.folder / "hold").exists() and not self.leaving:
            time.sleep(TICK_S)
        cluster.path.mkdir(exist_ok=True)
        facts = {key: body[key] for key in ("name", "infra", "num_nodes")}
        write_json(cluster.path / "cluster.json", facts | {"state": "coming"})
        if said := self._set_up(body, cluster):
            self._note(body, state="failed", message=said)
            return
        write_json(cluster.path / "cluster.json", facts | {"state": "up"})
        job = {"id": len(cluster.jobs()) + 1, "name": body["job_name"], "keeper": os.getpid()}
        file = cluster.path / f"job-{job['id']}.json"
        write_json(file, job | {"state": "running"})
        self._nodes = list(self._start(body, cluster, body["run"], str(job["id"])))
        self._note(body, state="done", job_id=job["id"])
        state = self._await_job()
        if not self.leaving:
            write_json(file, job | {"state": state})
            while any(node.poll() is None for node in self._nodes) and not self.leaving:
                time.sleep(TICK_S)
        if not self.leaving and (left := living_descendants()):
            (self.folder / f"left-{cluster.name}.txt").write_text("\n".join(left))
        while not self.leaving:
            time.sleep(TICK_S)

    def _set_up(self, body: dict[str, Any], cluster: Record) -> str | None:
        """Bring the files and run the set-up on every node; returns what went wrong."""
        for rank in range(body["num_nodes"]):
            home = str(cluster.home(rank))
            for target, source in body["files"].items():
                place = Path(target.replace("~", home, 1))
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
            place = Path(body["secrets_path"].replace("~", home, 1))
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, body["secrets"])
        for node in list(self._start(body, cluster, body["setup"], "setup")):
            while node.poll() is None and not self.leaving:
                time.sleep(TICK_S)
            if node.returncode:
                log = cluster.path / "setup-0.log"
                return f"the set-up exited with {node.returncode}: {log.read_text()[-500:]}"
        return "the cluster was ended" if self.leaving else None

    def _start(
        self, body: dict[str, Any], cluster: Record, script: str, what: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        ips = IPS[: body["num_nodes"]] if body["num_nodes"] > 1 else ("127.0.0.1",)
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        told = kept | body["envs"] | {MARK: body["name"]}
        gang = {
            "SKYPILOT_NODE_IPS": "\n".join(ips),
            "SKYPILOT_NUM_NODES": str(len(ips)),
            "SKYPILOT_TASK_ID": f"{self.request_id}-{what}",
            "HILLCLIMB_NODE_CPUS": "2",
            "HILLCLIMB_NODE_MIN_DISK_GB": "1",
            "HILLCLIMB_NODE_MIN_MEMORY_GB": "1",
        }
        for rank in range(len(ips)):
            home = cluster.home(rank)
            home.mkdir(exist_ok=True)
            own = {"HOME": str(home), "SKYPILOT_NODE_RANK": str(rank)}
            with (cluster.path / f"{what}-{rank}.log").open("ab") as log:
                yield subprocess.Popen(
                    ["bash", "-c", script],
                    cwd=home,
                    env=told | gang | own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def _await_job(self) -> str:
        """Wait for the job; as with SkyPilot, one node that fails ends it on the others."""
        while not self.leaving:
            codes = [node.poll() for node in self._nodes]
            if self.cancelled or any(codes):
                for node in self._nodes:
                    node.terminate()
                return "cancelled" if self.cancelled else "failed"
            if all(code == 0 for code in codes):
                return "succeeded"
            time.sleep(TICK_S)
        return "cancelled"

    def _note(self, body: dict[str, Any], **what: Any) -> None:
        kept = {key: body[key] for key in ("name", "infra", "num_nodes")}
        write_json(self.request, kept | what)


def living_descendants() -> list[str]:
    """What a job that ended has left running, with its marks or without.

    A process that was killed still needs processor time to end, of which a busy machine gives one
    of the lowest priority (the trials of a trainer) nothing for seconds.
    """
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and not _is_ending(child.pid):
                found.append(f"{child.pid} {' '.join(child.cmdline())}")
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue
    return found


def _is_ending(pid: int) -> bool:
    """True once SIGKILL waits for the process, or the kernel has begun to take it apart."""
    process = Path("/proc") / str(pid)
    lines = (process / "status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    flags = int((process / "stat").read_text().rpartition(")")[2].split()[6])
    return any(signals & KILL_MASK for signals in pending) or bool(flags & PF_EXITING)


def end_descendants() -> None:
    """Kill whatever was started here, until nobody is left."""
    me = psutil.Process()
    while children := me.children(recursive=True):
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(TICK_S)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def write_json(path: Path, body: dict[str, Any]) -> None:
    """Replace the file as a whole; only we may read it: a launch has secrets."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        json.dump(body, out)
    fresh.replace(path)


def main(folder: str, request_id: str) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
    keeper = Keeper(Path(folder), request_id)

    def leave(number: int, _frame: object) -> None:
        keeper.leaving = keeper.leaving or number == signal.SIGTERM
        keeper.cancelled = keeper.cancelled or number == signal.SIGUSR1

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGUSR1, leave)
    keeper.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
