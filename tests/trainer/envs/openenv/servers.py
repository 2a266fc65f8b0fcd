"""Real OpenEnv servers, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"


class Served:
    """A server that runs until it is stopped or killed."""

    def __init__(self, directory: Path, module: str, port: int = 0, **variables: str) -> None:
        assert PYTHON.exists(), "no .venv-peers: run `make test`, which makes it"
        self.process = subprocess.Popen(
            [PYTHON, HERE / "serve.py", directory, module, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._forget()

    def stop(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.process.terminate()
        self._forget()

    def _forget(self) -> None:
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def search_server() -> Served:
    """The example of the how-to."""
    return Served(ROOT / "examples" / "openenv_search", "environment")


def countdown_server(port: int = 0) -> Served:
    """One with an action of its own; reset arguments say how it misbehaves."""
    return Served(HERE, "countdown", port)
