"""Starts services as `docker-compose.yml` says, without a container engine.

Each gets exactly the command, the environment, the user and the privileges of its service and its
image. What a container changes is changed here: host names become ports of loopback, `python` the
interpreter that has the image's packages, and volumes folders of a temporary directory.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hillclimb.stack.system.binaries import valkey_program
from tests.e2e.compose.wire import Wire
from tests.structure.dockerfile import Stage, stages

ROOT = Path(__file__).resolve().parents[3]
STAGES = stages((ROOT / "Dockerfile").read_text())
IMAGE_UID = 10001
CONTROL = ("api", "worker", "beat")
WIRED = (
    ("api", "postgres"),
    ("worker", "postgres"),
    ("api", "valkey"),
    ("worker", "valkey"),
    ("beat", "valkey"),
    ("runner", "api"),
    ("trainer", "api"),
)
"""Who speaks to whom: each pair has a wire of its own."""
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")


def interpolated(value: Any, given: Mapping[str, str]) -> Any:
    """Replace `${NAME}`, `${NAME:-DEFAULT}` and `${NAME:?WHY}` as compose does, and `$$` by `$`.

    Raises:
        KeyError: A variable with `:?` is empty.
    """
    if isinstance(value, dict):
        return {key: interpolated(each, given) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each, given) for each in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        name, sign, rest = match.groups()
        if given.get(name):
            return given[name]
        if sign == "?":
            raise KeyError(f"{name}: {rest}")
        return rest or ""

    return VARIABLE.sub(replaced, value).replace("$$", "$")


def example_variables(secret: str) -> dict[str, str]:
    """Fill in what `.env.example` says has to be: every required variable is a secret."""
    required = re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text())
    prefixes = {"HILLCLIMB_BOOTSTRAP_KEY": "hc_", "HILLCLIMB_RUNNER_TOKEN": "hcr_"}
    return {name: f"{prefixes.get(name, '')}{secret}{number:02}"
            for number, name in enumerate(sorted(set(required)))}  # fmt: skip


@dataclass(slots=True)
class Deployment:
    """The services of the compose file in a folder of their own."""

    folder: Path
    variables: dict[str, str]
    ports: dict[str, int]
    """On loopback, by the names of `postgres`, `valkey` and `api`."""
    pythons: dict[str, Path]
    """Interpreters by target of the Dockerfile."""
    wires: dict[tuple[str, str], Wire] = field(default_factory=dict)
    """By who speaks to whom; a pair without one speaks directly."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def service(self, name: str) -> dict[str, Any]:
        document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        found: dict[str, Any] = interpolated(document["services"][name], self.variables)
        return found

    def image(self, name: str) -> Stage:
        return STAGES[self.service(name)["build"]["target"]]

    def environment(self, name: str) -> dict[str, str]:
        """The service's variables, the image's beneath them, and nothing of this process."""
        service = self.service(name)
        image = self.image(name).environment if "build" in service else {}
        path = f"{valkey_program().parent}:/usr/bin:/bin"
        ours = {"PATH": path, "HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        theirs = image | service["environment"]
        return ours | {key: self._here(name, str(value)) for key, value in theirs.items()}

    def command(self, name: str) -> list[str]:
        service = self.service(name)
        words = service.get("command") or self.image(name).command
        return [self._here(name, word) for word in words]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a service; its output goes to NAME.log."""
        process = self._popen(name, self.command(name), self.folder / f"{name}.log")
        self.processes[name] = process
        return process

    def health(self, name: str) -> int:
        """Run the health check of the service's image; return its exit code."""
        check = self.image(name).values("HEALTHCHECK")[-1].partition(" CMD ")[2]
        words = [self._here(name, word) for word in yaml.safe_load(check)]
        return self._popen(name, words, self.folder / f"{name}.health.log").wait(30)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> dict[str, int]:
        """Ask every process to end, as `docker compose down` does; return the exit codes."""
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.terminate()
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(100)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        return codes

    def _popen(self, name: str, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        service = self.service(name)
        confined = ["setpriv", "--no-new-privs"]
        if os.geteuid() == 0:
            assert service["cap_drop"] == ["ALL"]
            confined += ["--bounding-set=-all", "--inh-caps=-all", f"--reuid={IMAGE_UID}"]
            confined += [f"--regid={IMAGE_UID}", "--clear-groups"]
        with log.open("ab") as output:
            return subprocess.Popen(
                [*confined, *words],
                cwd=ROOT,  # the image's /srv/hillclimb
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _here(self, name: str, text: str) -> str:
        """Return a word or a value with the places of this machine in it."""
        service = self.service(name)
        if "build" in service and re.fullmatch("(/usr/local/bin/)?python", text):
            return str(self.pythons[service["build"]["target"]])
        text = re.sub(r"^/tmp/", f"{self.folder}/tmp-{name}-", text)
        for there, here in self._places(name).items():
            text = text.replace(there, here)
        return text

    def _places(self, name: str) -> dict[str, str]:
        """What the compose file's names of places are for a service on this machine."""
        valkey = f"dir {self.folder}/state\nbind 127.0.0.1\nport {self.ports['valkey']}\n"
        # The API tells trainers its address: that of the variable is theirs.
        speaker = "trainer" if name == "api" else name
        return {
            "postgres:5432": f"127.0.0.1:{self._port(name, 'postgres')}",
            "valkey:6379": f"127.0.0.1:{self._port(name, 'valkey')}",
            "http://api:8710": f"http://127.0.0.1:{self._port(speaker, 'api')}",
            "127.0.0.1:8710": f"127.0.0.1:{self.ports['api']}",
            "8710": str(self.ports["api"]),
            "0.0.0.0": "127.0.0.1",
            "/var/lib/hillclimb": str(self.folder / "state"),
            "dir /data\n": valkey,
        }

    def _port(self, speaker: str, to: str) -> int:
        wire = self.wires.get((speaker, to))
        return wire.port if wire else self.ports[to]
