"""SkyPilot's API server of our own: a private home, a port, and how it is run.

It is the one process that holds the operator's credentials of clouds. Its home is ours, so that it
shares no state with a SkyPilot of the operator's own; what a cloud's client reads from a home
(`~/.aws`, `~/.lambda_cloud` …) is linked into it.
"""

import importlib.util
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hillclimb.stack.errors import BinaryMissing
from hillclimb.stack.ports import LOOPBACK, find_free, is_free

LINKED = (
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/vastai",
    ".kube",
    ".lambda_cloud",
    ".nebius",
    ".prime",
    ".runpod",
    ".slurm",
    ".sky/catalogs",
    ".sky/config.yaml",
)
"""What of the operator's home a cloud's client reads, and SkyPilot's settings and price lists."""

USER_ID = "68636c62"
"""Whose clusters they are, as SkyPilot counts users; it ends their names on a cloud."""

RUNTIME_DIR_VARIABLE = "SKY_RUNTIME_DIR"
ENDPOINT_VARIABLE = "SKYPILOT_API_SERVER_ENDPOINT"
_USUAL_PORT = 46580
"""SkyPilot's own; a client takes a server on it for one that it may start."""
_USUAL_QUEUE_PORT = 50011


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyServer:
    """One SkyPilot API server on 127.0.0.1:`port` with `directory`/home as its home.

    `origin` is the home whose credentials it uses.
    """

    directory: Path
    port: int
    origin: Path

    @property
    def home(self) -> Path:
        """Its home: state, keys of clusters, and requests with the secrets in them (mode 0700)."""
        return self.directory / "home"

    @property
    def url(self) -> str:
        """What clients need to know of it."""
        return f"http://{LOOPBACK}:{self.port}"

    def initialise(self) -> None:
        """Make the home and link the credentials that there are. Raises BinaryMissing."""
        if importlib.util.find_spec("sky") is None:
            raise BinaryMissing("SkyPilot is not installed; run `make setup` again.")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home.mkdir(mode=0o700, exist_ok=True)
        for name in LINKED:
            there, here = self.origin / name, self.home / name
            if here.is_symlink():
                here.unlink()
            if there.exists() and not here.exists():
                here.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                here.symlink_to(there.resolve())

    def command(self) -> tuple[str, ...]:
        """The server's command line: with `SKY_RUNTIME_DIR` it would take another database."""
        place = ("--host", LOOPBACK, "--port", str(self.port))
        server = (sys.executable, "-m", "sky.server.server", *place)
        return ("env", "-u", RUNTIME_DIR_VARIABLE, *server)

    def environment(self) -> dict[str, str]:
        """Variables of the server; programs of our environment are found first (awscli, say)."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        return {
            "HOME": str(self.home),
            "PATH": path,
            "IS_SKYPILOT_SERVER": "true",
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(self.port),
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "SKYPILOT_USER_ID": USER_ID,
            "PYTHONUNBUFFERED": "1",
        }


def client_environment(url: str, directory: Path) -> dict[str, str]:
    """Variables of a client of the server at `url`; what it keeps lies in `directory`.

    Without that it would keep it among the files of the operator's own SkyPilot.
    """
    return {ENDPOINT_VARIABLE: url, RUNTIME_DIR_VARIABLE: str(directory)}


def queue_port(port: int) -> int:
    """Where a server on `port` has its queue of requests: SkyPilot moves the two together."""
    moved = _USUAL_QUEUE_PORT - 50_000 + port - _USUAL_PORT
    return 50_000 + moved % 10_000


def find_sky_port(*, preferred: int | None = None, taken: Collection[int] = ()) -> int:
    """A loopback port that is free, with that of its queue: `preferred` if possible."""
    port = find_free(preferred=preferred, taken=taken)
    while port == _USUAL_PORT or not is_free(queue_port(port)) or queue_port(port) in taken:
        port = find_free(taken={*taken, port})
    return port
