"""A real Slurm of two nodes on this machine for the length of a block, and nothing of it after."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free

HERE = Path(__file__).parent
NAME = "skytest"
"""Of the cluster: SkyPilot's infra is `slurm/skytest`."""
PROGRAMS = ("slurmctld", "slurmd", "munged", "sshd", "ssh", "rsync")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
DOWN_S, EMPTY_S = 60.0, 30.0


def what_is_missing() -> str | None:
    """Why there can be no Slurm here, or None."""
    missing = [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]
    if missing:
        return f"{', '.join(missing)} missing: `make e2e` installs them where root and apt allow"
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    if importlib.util.find_spec("uv") is None:
        return "the package uv is missing: `make setup` installs it"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSlurm:
    """Two nodes with eight H100s each that are links to /dev/null, behind an sshd.

    `directory` can be entered by everybody; `account` owns the cluster's side.
    """

    directory: Path
    account: str
    ports: dict[str, int]

    def configure(self, home: Path) -> None:
        """Tell the SkyPilot that reads `home` of this cluster, with prices of its own."""
        shutil.copytree(self.directory / "operator", home, dirs_exist_ok=True)

    def jobs(self) -> list[tuple[int, str, str]]:
        """Number, name and state of every job that `squeue` lists."""
        lines = self.ask("squeue", "--noheader", "--format", "%i|%j|%T").splitlines()
        parts = [line.strip().split("|") for line in lines if line.strip()]
        return [(int(number), name, state) for number, name, state in parts]

    def cancel(self, job: int) -> None:
        """`scancel`: to SkyPilot, the cloud took the machines away."""
        self.ask("scancel", str(job))

    def empty(self, *, deadline_s: float = EMPTY_S) -> bool:
        """True once no job is listed."""
        return wait_until(lambda: not self.jobs(), deadline_s=deadline_s)

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": PATH, "SLURM_CONF": f"{self.directory}/slurm.conf"},
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout

    def processes(self) -> list[str]:
        """Every live process of the cluster: its daemons, its account's, their connections."""
        found = [each for each in psutil.process_iter() if self._owns(each)]
        return [f"{each.pid} {' '.join(_words(each))}" for each in found]

    def python_with(self, site_packages: Path) -> Path:
        """An interpreter that the account may run, with the packages of another environment.

        That environment's own interpreter may lie where others cannot go (pyenv below /root).
        """
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        root = self.directory / "borrowed"
        if root.is_dir():
            return root / "bin" / "python"
        (root / "bin").mkdir(parents=True)
        (root / "bin" / "python").symlink_to(f"/usr/bin/python{version}")
        (root / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
        (root / "lib" / f"python{version}").mkdir(parents=True)
        (root / "lib" / f"python{version}" / "site-packages").symlink_to(site_packages)
        return root / "bin" / "python"

    def up(self) -> None:
        """Start it. Raises RuntimeError with what the script said."""
        self._script("up", str(self.directory), str(_uv_program()), **self._variables())

    def down(self) -> None:
        """Cancel what runs, stop every process by its pid, remove the account and the files."""
        with suppress(subprocess.SubprocessError):
            self.ask("scancel", "--user", self.account)
            self.empty()
        self._script("down", str(self.directory))
        shutil.rmtree(self.directory)

    def _variables(self) -> dict[str, str]:
        ports = {name: str(port) for name, port in self.ports.items()}
        clouds = "slurm, primeintellect"
        return {"ACCOUNT": self.account, "CLUSTER": NAME, "CLOUDS": clouds, **ports}

    def _script(self, *arguments: str, **variables: str) -> None:
        # To a file: daemons would keep a pipe open for as long as they live.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                ["bash", str(HERE / "local_slurm.sh"), *arguments],
                env={**os.environ, "PATH": PATH, **variables},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=DOWN_S,
                check=False,
            )
            said.seek(0)
            if done.returncode != 0:
                raise RuntimeError(f"local_slurm.sh {arguments[0]}: {said.read()[-2000:]}")

    def _owns(self, process: psutil.Process) -> bool:
        words = _words(process)
        with suppress(psutil.Error):
            if process.username() == self.account:
                return True
        text = " ".join(words)
        return text.startswith(f"sshd: {self.account}") or (
            str(self.directory) in text and process.pid != os.getpid()
        )


@contextmanager
def local_slurm() -> Iterator[LocalSlurm]:
    """A Slurm of our own, up; everything of it is gone after the block."""
    taken: list[int] = []
    for _ in range(4):
        taken.append(find_free(excluded=taken))
    # Short: names of sockets may have 107 characters. Open: the account has to get in.
    directory = Path(tempfile.mkdtemp(prefix="hc-slurm-", dir="/tmp"))
    directory.chmod(0o755)
    slurm = LocalSlurm(
        directory=directory,
        account=f"hcslurm{secrets.token_hex(2)}",
        ports=dict(zip(("PORT_CTLD", "PORT_NODE1", "PORT_NODE2", "PORT_SSH"), taken, strict=True)),
    )
    try:
        slurm.up()
        yield slurm
    finally:
        slurm.down()


def _uv_program() -> Path:
    found = shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise RuntimeError("no uv beside this Python")
    return Path(found)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.Error, OSError):
        return []
