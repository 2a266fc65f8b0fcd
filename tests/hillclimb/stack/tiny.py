"""Tiny real services and a supervisor over them in a process of its own.

`python -m tests.hillclimb.stack.tiny STATE` supervises the services described in STATE/tiny.json.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ServiceRecord, StackRecord
from hillclimb.stack.supervisor.service import Backoff
from hillclimb.stack.supervisor.spec import ServiceSpec
from hillclimb.stack.supervisor.supervisor import Supervisor
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by

REPOSITORY = Path(__file__).parents[3]
DEADLINE_S = 20.0
QUICK = Backoff(first_s=0.05, attempts=3)

# Says when it is ready, waits for SIGTERM, notes that it stopped. "stubborn" ignores SIGTERM,
# "broken" complains and exits with 1, "done" exits with 0, "parent" starts a detached process,
# "slow" never says that it is ready. "pool" has a child in its group that lost our mark (as one
# does that writes itself a title) and ignores SIGTERM.
PROGRAM = textwrap.dedent(
    """
    import pathlib, signal, subprocess, sys
    name, kind, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if kind == "broken":
        sys.exit("the disk is on fire")
    if kind == "done":
        sys.exit(0)
    def stop(*_):
        if kind != "stubborn":
            with (folder / "stopped").open("a") as file:
                file.write(name + "\\n")
            sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    if kind == "parent":
        subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()", "detached"],
                         start_new_session=True)
    if kind == "pool":
        deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
        subprocess.Popen([sys.executable, "-S", "-c", deaf + "; signal.pause()"], env={},
                         stdout=subprocess.PIPE).stdout.readline()
    if kind != "slow":
        (folder / "ready" / name).touch()
    while True:
        signal.pause()
    """
)


def tiny_specs(state: Path) -> list[ServiceSpec]:
    """Specifications from STATE/tiny.json: a list of {name, kind, needs?, stop_s?, mark?}."""
    return [_spec(state, entry) for entry in json.loads((state / "tiny.json").read_text())]


def _spec(state: Path, entry: dict[str, Any]) -> ServiceSpec:
    name, kind = entry["name"], entry.get("kind", "plain")
    ready = state / "ready" / name
    return ServiceSpec(
        name=name,
        command=(sys.executable, "-S", "-c", PROGRAM, name, kind, str(state)),
        cwd=state,
        environment={"MARK": entry.get("mark", "")},
        needs=tuple(entry.get("needs", ())),
        prepare=lambda: ready.unlink(missing_ok=True),
        ready=lambda _log: None if ready.exists() else "it has not written its file",
        start_s=float(entry.get("start_s", 60.0)),
        one_shot=bool(entry.get("one_shot")),
        stop_s=float(entry.get("stop_s", 10.0)),
    )


@dataclass(slots=True)
class TinyStack:
    """Handle on a state directory whose services are tiny."""

    state: StateDirectory
    supervisor: subprocess.Popen[str] | None = None

    def describe(self, *entries: Mapping[str, object]) -> None:
        """Set the services of the next start."""
        self.state.create()
        (self.state.path / "tiny.json").write_text(json.dumps(entries))

    def start(self) -> subprocess.Popen[str]:
        """Start a supervisor."""
        self.supervisor = subprocess.Popen(
            [sys.executable, "-m", "tests.hillclimb.stack.tiny", str(self.state.path)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.supervisor

    def start_ready(self) -> StackRecord:
        """Start a supervisor and wait until it says that all is ready."""
        process = self.start()
        self.await_record(lambda record: record.state == "ready" and _by(record, process.pid))
        return self.record()

    def record(self) -> StackRecord:
        """The present `stack.json`."""
        return self.state.read()

    def service(self, name: str) -> ServiceRecord:
        """One service's record."""
        return self.record().services[name]

    def pid(self, name: str) -> int:
        """The recorded pid of a service."""
        process = self.service(name).process
        assert process is not None
        return process.pid

    def await_record(self, holds: Callable[[StackRecord], bool]) -> None:
        """Wait until `holds(record)`."""
        assert wait_until(lambda: holds(self.record()), deadline_s=DEADLINE_S), self.record()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signal the supervisor; its exit code and what it said."""
        assert self.supervisor is not None
        self.supervisor.send_signal(number)
        said, _ = self.supervisor.communicate(timeout=DEADLINE_S)
        return self.supervisor.returncode, said

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor if it runs; its services go on."""
        if self.supervisor is not None:
            self.supervisor.kill()
            self.supervisor.wait()
            assert self.supervisor.stdout is not None
            self.supervisor.stdout.close()
            self.supervisor = None

    def left(self) -> list[int]:
        """Pids of processes that carry the stack's mark."""
        return [identity.pid for identity, _ in owned_by(self.state.path)]

    def stop_order(self) -> list[str]:
        """Names of the services in the order in which they stopped."""
        return (self.state.path / "stopped").read_text().split()

    def clear(self) -> None:
        """Kill whatever a failed test left."""
        self.kill_supervisor()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)


def _by(record: StackRecord, pid: int) -> bool:
    return record.supervisor is not None and record.supervisor.pid == pid


def main(state_path: Path) -> int:
    """Supervise the tiny services of `state_path`."""
    state = StateDirectory(state_path)
    with state.hold():
        return Supervisor(
            specs=tiny_specs(state_path),
            directory=state,
            say=lambda line: print(line, flush=True),  # noqa: T201
            backoff=QUICK,
        ).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
