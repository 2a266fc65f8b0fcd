"""The stack's own SkyPilot API server: home directory, port and command line.

It is the only process with the operator's cloud credentials. It has a private home, so that it
shares no state with the operator's own SkyPilot; files that cloud clients read from a home
(`~/.aws`, `~/.lambda_cloud` …) are linked into it.
"""

import importlib.util
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.stack.errors import BinaryMissing
from hillclimb.stack.system.cloud_keys import write_cloud_keys
from hillclimb.stack.system.ports import LOOPBACK, find_free, is_free

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
"""Files of the operator's home that cloud clients read, and SkyPilot's settings and catalogs."""

USER_ID = "68636c62"
"""SkyPilot's user id of the clusters; a suffix of their names on a cloud."""

RUNTIME_DIR_VARIABLE = "SKY_RUNTIME_DIR"
ENDPOINT_VARIABLE = "SKYPILOT_API_SERVER_ENDPOINT"
_USUAL_PORT = 46580
"""SkyPilot's default; clients assume that they may start a server on it."""
_USUAL_QUEUE_PORT = 50011


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyServer:
    """One SkyPilot API server on 127.0.0.1:`port` with `directory`/home as its home.

    `origin` is the home whose credentials it uses; `keys` of clouds, by variable, go before them.
    """

    directory: Path
    port: int
    origin: Path
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def home(self) -> Path:
        """Its home: state, keys of clusters, and requests with the secrets in them (mode 0700)."""
        return self.directory / "home"

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def initialise(self) -> None:
        """Create the home and link the existing credentials. Raises BinaryMissing."""
        if importlib.util.find_spec("sky") is None:
            raise BinaryMissing("SkyPilot is not installed; run `make setup` again.")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home.mkdir(mode=0o700, exist_ok=True)
        for name in LINKED:
            source, link = self.origin / name, self.home / name
            if link.is_symlink():
                link.unlink()
            if source.exists() and not link.exists():
                link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                link.symlink_to(source.resolve())
        write_cloud_keys(self.home, self.keys)

    def command(self) -> tuple[str, ...]:
        """The server's command line, without `SKY_RUNTIME_DIR`, which selects another database."""
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
    """Variables of a client of the server at `url`, with its state in `directory`.

    Its default would be the state directory of the operator's own SkyPilot.
    """
    return {ENDPOINT_VARIABLE: url, RUNTIME_DIR_VARIABLE: str(directory)}


def queue_port(port: int) -> int:
    """Port of the request queue of a server on `port`: SkyPilot shifts both by the same offset."""
    moved = _USUAL_QUEUE_PORT - 50_000 + port - _USUAL_PORT
    return 50_000 + moved % 10_000


def find_sky_port(*, preferred: int | None = None, excluded: Collection[int] = ()) -> int:
    """Return a free loopback port whose queue port is free too: `preferred` if possible."""
    port = find_free(preferred=preferred, excluded=excluded)
    while port == _USUAL_PORT or not is_free(queue_port(port)) or queue_port(port) in excluded:
        port = find_free(excluded={*excluded, port})
    return port
