"""The Ray cluster a trainer works on: a local one of its own, or one that was there before.

A cluster that was there before is joined and left, never stopped: on SkyPilot's machines Ray runs
what else is there too.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ray
from ray._private import ray_constants
from ray._private import utils as ray_utils
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    remove_placement_group,
)

from trainer.errors import PlacementError
from trainer.leftovers import own_path

ADDRESS, PORT = "RAY_ADDRESS", "HILLCLIMB_RAY_PORT"
NODE_IPS, NUM_NODES = "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES"
DEFAULT_PORT = 6379
"""Of the cluster that a launch starts for us; SkyPilot's own Ray is on 6380."""
OBJECT_STORE_BYTES = 512 * 1024 * 1024
"""Batches and rollouts pass through it; weights do not."""
READY_TIMEOUT_S = 60.0
_PREFIX = "hillclimb-ray-"
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_FOLDERS = Path("/tmp")  # noqa: S108 - short: it ends up in names of sockets (107 characters)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one worker needs of one machine."""

    cpus: float
    gpus: float = 0.0

    def resources(self) -> dict[str, float]:
        """As Ray counts them."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})


def existing_address(environ: Mapping[str, str]) -> str | None:
    """Where a cluster runs that is to be joined; None where a local one is to be started.

    `RAY_ADDRESS` names it outright. On more than one of SkyPilot's machines it is on the first one,
    at `HILLCLIMB_RAY_PORT`.
    """
    if address := environ.get(ADDRESS):
        return address
    nodes = environ.get(NODE_IPS, "").split()
    if int(environ.get(NUM_NODES, len(nodes)) or 0) < 2 or not nodes:
        return None
    return f"{nodes[0]}:{environ.get(PORT, DEFAULT_PORT)}"


class Cluster:
    """A cluster joined; workers are placed into its one placement group."""

    def __init__(self, bundles: list[Bundle], environ: Mapping[str, str]) -> None:
        """Join or start a cluster and reserve what `bundles` need.

        Raises:
            PlacementError: no cluster answers, or it does not have what is needed.
        """
        self._folder: Path | None = None
        address = existing_address(environ)
        use_loopback(address is None or address.startswith("127."))
        try:
            with _own_signals():
                if address is None:
                    self._start(bundles)
                else:
                    ray.init(address=address, log_to_driver=True, configure_logging=False)
            self.group = self._reserve(bundles)
        except PlacementError:
            self.leave()
            raise
        except Exception as fault:
            # A Ray that does not start in time raises a plain Exception.
            self.leave()
            raise PlacementError(f"Ray at {address or 'this machine'}: {fault}") from fault
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Give back what was reserved; a cluster started here ends, one that was joined goes on."""
        try:
            if ray.is_initialized():
                with _own_signals():
                    self._shut_down()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def num_machines(self) -> int:
        """How many nodes the cluster has."""
        return sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]

    def _shut_down(self) -> None:
        try:
            if hasattr(self, "group"):
                remove_placement_group(self.group)
        except RayError as fault:
            # Gone with the cluster's head.
            _log.warning("the placement group was not given back: %s", fault)
        finally:
            ray.shutdown()

    def _start(self, bundles: list[Bundle]) -> None:
        self._folder = own_path(_FOLDERS, _PREFIX)
        self._folder.mkdir(mode=0o700)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's own default is 15: whatever else the machine does would come before training.
        os.environ.setdefault("RAY_worker_niceness", "0")
        needed = sum(bundle.cpus for bundle in bundles)
        ray.init(
            num_cpus=max(os.cpu_count() or 1, math.ceil(needed)),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=True,
            configure_logging=False,
            _temp_dir=str(self._folder),
        )

    def _reserve(self, bundles: list[Bundle]) -> PlacementGroup:
        group: PlacementGroup = placement_group(
            [bundle.resources() for bundle in bundles], strategy="PACK"
        )
        # Not `group.ready()`, which is a task, and starts a process for it.
        if not group.wait(READY_TIMEOUT_S):
            remove_placement_group(group)
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            raise PlacementError(
                f"the cluster has {_told(resources)} and cannot hold the run's"
                f" workers, which need {_told(_sum(bundles))}: lower placement or engine sizes, or"
                " add machines"
            )
        return group


def use_loopback(wanted: bool) -> None:  # noqa: FBT001
    """Let Ray use 127.0.0.1, or the machine's own address.

    On Linux it listens on the latter even where it is alone. Its switch for that is named after
    other systems and read when Ray is imported; its own processes read the variable.
    """
    ray_constants.ENABLE_RAY_CLUSTER = not wanted
    os.environ[_LOOPBACK] = "0" if wanted else "1"


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep SIGTERM what it was: a request to stop after a checkpoint.

    Ray would end the process and its workers at once. It sets a handler twice in Python, and then
    one in C++ below Python's, which it takes away at its end together with Python's: setting
    Python's again brings that back.
    """
    mine = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    theirs = ray_utils.set_sigterm_handler
    ray_utils.set_sigterm_handler = lambda _handler: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = theirs
        signal.signal(signal.SIGTERM, mine)
        signal.siginterrupt(signal.SIGTERM, False)  # noqa: FBT003 - as asyncio has it


def _sum(bundles: list[Bundle]) -> dict[str, float]:
    return {
        "CPU": sum(bundle.cpus for bundle in bundles),
        "GPU": sum(bundle.gpus for bundle in bundles),
    }


def _told(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"
