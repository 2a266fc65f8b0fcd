"""The Ray cluster of a trainer: a local one of its own, or an existing one that it joins.

An existing cluster is joined and left, never stopped: on SkyPilot's machines Ray may run other
jobs.
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
import torch
from ray._private import ray_constants
from ray._private import utils as ray_utils
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    remove_placement_group,
)

from hillclimb.process.network.addresses import OWN_MACHINE, PRIVATE_HOSTS
from hillclimb.spec.backend.counts import counted
from trainer.attempt.scratch import scratch_path
from trainer.errors import PlacementError

ADDRESS, PORT = "RAY_ADDRESS", "HILLCLIMB_RAY_PORT"
NODE_IPS, NUM_NODES = "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES"
DEFAULT_PORT = 6379
"""Port of the cluster that a launch starts for us; SkyPilot's own Ray is on 6380."""
OBJECT_STORE_BYTES = 512 * 1024 * 1024
"""Batches and rollouts pass through it; weights do not."""
READY_TIMEOUT_S = 60.0
_PREFIX = "hillclimb-ray-"
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_FOLDERS = Path("/tmp")  # noqa: S108 - short: it ends up in names of sockets (107 characters)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Resources of one worker on one machine."""

    cpus: float
    gpus: float = 0.0

    def resources(self) -> dict[str, float]:
        """Return them under Ray's names."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})


def existing_address(environ: Mapping[str, str]) -> str | None:
    """Return the address of the existing cluster to join; None where a local one is to be started.

    `RAY_ADDRESS` names it outright. On more than one of SkyPilot's machines it is on the first one,
    at `HILLCLIMB_RAY_PORT`.
    """
    if address := environ.get(ADDRESS):
        return address
    nodes = environ.get(NODE_IPS, "").split()
    if int(environ.get(NUM_NODES, len(nodes)) or 0) < 2 or not nodes:
        return None
    return f"{nodes[0]}:{environ.get(PORT, DEFAULT_PORT)}"


class RayCluster:
    """Connection to a cluster; workers are placed into its one placement group."""

    group: PlacementGroup
    """The reserved resources; there is none before `reserve`."""

    def __init__(self, num_cpus: float, environ: Mapping[str, str]) -> None:
        """Join a cluster, or start one that has at least `num_cpus`.

        Raises:
            PlacementError: no cluster answers.
        """
        self._folder: Path | None = None
        address = existing_address(environ)
        use_loopback(address is None or address.startswith("127."))
        try:
            with _own_signals():
                if address is None:
                    self._start(num_cpus)
                else:
                    # Its workers have the environment of whoever started the cluster.
                    reach = {PRIVATE_HOSTS: environ.get(PRIVATE_HOSTS, OWN_MACHINE)}
                    ray.init(
                        address=address,
                        runtime_env={"env_vars": reach},
                        log_to_driver=True,
                        configure_logging=False,
                    )
            # A GPU that this machine's torch cannot use is none. A joined cluster's may be on its
            # other machines only.
            self.has_gpus = torch.cuda.is_available() or (address is not None and _has_gpus())
        except Exception as fault:
            # A Ray that does not start in time raises a plain Exception.
            self.leave()
            why = str(fault) or type(fault).__name__
            raise PlacementError(f"Ray at {address or 'this machine'}: {why}") from fault
        except BaseException:
            self.leave()
            raise

    def reserve(self, bundles: list[Bundle]) -> None:
        """Reserve what `bundles` need.

        Raises:
            PlacementError: the cluster lacks the resources; it is left.
        """
        try:
            self.group = self._reserved(bundles)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Release the placement group; stop a cluster that was started here, leave a joined one."""
        try:
            if ray.is_initialized():
                with _own_signals():
                    self._shut_down()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def num_machines(self) -> int:
        """Number of live nodes of the cluster."""
        return sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]

    def _shut_down(self) -> None:
        try:
            if hasattr(self, "group"):
                remove_placement_group(self.group)
        except RayError as fault:
            # The cluster's head has exited, and the group with it.
            _log.warning("the placement group was not released: %s", fault)
        finally:
            ray.shutdown()

    def _start(self, num_cpus: float) -> None:
        self._folder = scratch_path(_FOLDERS, _PREFIX)
        self._folder.mkdir(mode=0o700)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's own default is 15: whatever else the machine does would come before training.
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(
            num_cpus=max(os.cpu_count() or 1, math.ceil(num_cpus)),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=True,
            configure_logging=False,
            _temp_dir=str(self._folder),
        )

    def _reserved(self, bundles: list[Bundle]) -> PlacementGroup:
        group: PlacementGroup = placement_group(
            [bundle.resources() for bundle in bundles], strategy="PACK"
        )
        # Not `group.ready()`, which is a task, and starts a process for it.
        if not group.wait(READY_TIMEOUT_S):
            remove_placement_group(group)
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            raise PlacementError(
                f"the cluster has {_resources_text(resources)} and cannot hold the run's"
                f" workers, which need {_resources_text(_sum(bundles))}: lower placement or engine"
                " sizes, or add machines"
            )
        return group


def use_loopback(enabled: bool) -> None:  # noqa: FBT001
    """Make Ray use 127.0.0.1, or the machine's own address.

    On Linux Ray listens on the latter even on a single machine. Its switch is named after other
    systems and read when Ray is imported; its own processes read the variable.
    """
    ray_constants.ENABLE_RAY_CLUSTER = not enabled
    os.environ[_LOOPBACK] = "0" if enabled else "1"


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our SIGTERM handler: the signal requests a stop after a checkpoint.

    Ray's handler would end the process and its workers at once. Ray sets one twice in Python, and
    then one in C++ below Python's, which it removes at its end together with Python's: setting
    Python's again restores that.
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


def _has_gpus() -> bool:
    """Tell whether any machine of the cluster has a GPU; the trainer's own may have none."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return resources.get("GPU", 0.0) > 0.0


def _sum(bundles: list[Bundle]) -> dict[str, float]:
    return {
        "CPU": sum(bundle.cpus for bundle in bundles),
        "GPU": sum(bundle.gpus for bundle in bundles),
    }


def _resources_text(resources: Mapping[str, float]) -> str:
    cpus, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    return f"{counted(cpus, 'CPU')} and {counted(gpus, 'GPU')}"
