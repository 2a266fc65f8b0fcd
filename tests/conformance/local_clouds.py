"""A cloud whose machines are processes of this one: `HILLCLIMB_CLOUDS=…local_clouds:make_clouds`.

The port as workers use it, for real: a launch takes time, runs each node's set-up and job as
`worker/skypilot/node_setup.py` wrote them, and `down` is a power cut. Only the renting is local.
What is there is in files (`HILLCLIMB_LOCAL_CLOUDS` names the folder), because several workers ask.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from hillclimb.hardware.offers import Offer
from hillclimb.stack.system.poll import wait_until
from tests.conformance import machine
from tests.conformance.machine import Record, read_json, write_json
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudJob,
    CloudState,
    ClusterFacts,
    ClusterPlan,
    ErrorKind,
    JobState,
    OfferOutcome,
    RequestReport,
    RequestState,
    TriedOffer,
)

FOLDER = "HILLCLIMB_LOCAL_CLOUDS"
HOURLY_USD = 3.6
"""Of one node: what a cluster costs is checked, so it has a price."""
POWER_CUT_S = 20.0
REGION = "loopback"


def make_clouds(prefix: str) -> LocalClouds:
    """Return the clouds in the folder that the environment names. Raises ValueError."""
    folder = os.environ.get(FOLDER)
    if not folder:
        raise ValueError(f"{FOLDER} is not set")
    return LocalClouds(Path(folder), prefix)


class LocalClouds:
    """`hold()` makes every launch wait, as machines that boot slowly do."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self.folder, self.prefix = folder, prefix
        for each in ("requests", "clusters"):
            (folder / each).mkdir(parents=True, exist_ok=True)

    @property
    def gate(self) -> Path:
        """Launches wait while this file is there."""
        return self.folder / "hold"

    # What follows is the port.

    def launch(self, plan: ClusterPlan) -> str:
        number = len(list((self.folder / "requests").glob("*.json")))
        request_id = f"r{number:04d}-{secrets.token_hex(3)}"
        where = self.folder / "requests" / f"{request_id}.json"
        body = asdict(plan) | {"state": RequestState.WORKING.value}
        del body["candidates"], body["trainer"]
        write_json(where, body | {"infra": plan.candidates[0].infra})
        with (self.folder / f"{request_id}.log").open("wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", machine.__name__, str(self.folder), request_id],
                cwd=Path(__file__).parents[2],
                env={**os.environ, machine.MARK: plan.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        keeper.returncode = 0  # it outlives the worker that asked
        return request_id

    def list_launches(self, name: str) -> tuple[str, ...]:
        working = [
            request_id
            for request_id, body in self._requests()
            if body["name"] == name and body["state"] == RequestState.WORKING
        ]
        return tuple(working)

    def get_launch(self, request_id: str) -> RequestReport:
        body = read_json(self.folder / "requests" / f"{request_id}.json")
        if body is None:
            return RequestReport(state=RequestState.FORGOTTEN)
        state = RequestState(body["state"])
        if state is RequestState.FAILED:
            kind = ErrorKind.SETUP_FAILED
            return RequestReport(state=state, error=CloudError(kind, body["message"]))
        if state is RequestState.WORKING:
            return RequestReport(state=state)
        facts = _facts(body)
        offer = TriedOffer(
            infra=facts.infra, region=REGION, hourly_usd=facts.hourly_usd, outcome=OfferOutcome.UP
        )
        return RequestReport(state=state, job_id=body["job_id"], cluster=facts, offers=(offer,))

    def list_clusters(self) -> Mapping[str, CloudCluster]:
        found = {}
        for cluster in self._clusters():
            state = CloudState(cluster.body["state"])
            sighting = CloudCluster(name=cluster.name, state=state, cluster=_facts(cluster.body))
            found[cluster.name] = sighting
        return found

    def get_cluster(self, name: str) -> CloudCluster | None:
        return self.list_clusters().get(name)

    def list_jobs(self, name: str) -> tuple[CloudJob, ...]:
        cluster = Record(self.folder / "clusters" / name)
        return tuple(
            CloudJob(id=body["id"], name=body["name"], state=JobState(body["state"]))
            for body in cluster.jobs()
        )

    def cancel_jobs(self, name: str, ids: tuple[int, ...]) -> str:
        cluster = Record(self.folder / "clusters" / name)
        for body in cluster.jobs():
            if body["id"] in ids and psutil.pid_exists(body["keeper"]):
                os.kill(body["keeper"], signal.SIGUSR1)
        return "cancel"

    def terminate(self, name: str) -> str:
        keepers = [process for process in psutil.process_iter() if _keeps(process, name)]
        for keeper in keepers:
            keeper.terminate()
        wait_until(lambda: not any(map(_lives, keepers)), deadline_s=POWER_CUT_S)
        Record(self.folder / "clusters" / name).remove()
        return "down"

    def termination_fault(self, request_id: str) -> str | None:
        return None

    def list_offers(self, plan: ClusterPlan) -> tuple[Offer, ...]:
        price = HOURLY_USD * plan.num_nodes
        return tuple(
            Offer(candidate=number, infra=each.infra, sku=None, hourly_usd=price)
            for number, each in enumerate(plan.candidates)
        )

    def _requests(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in sorted((self.folder / "requests").glob("*.json")):
            body = read_json(path)
            if body is not None:
                yield path.stem, body

    def _clusters(self) -> Iterator[Record]:
        for path in sorted((self.folder / "clusters").iterdir()):
            cluster = Record(path)
            if path.name.startswith(self.prefix) and cluster.is_there():
                yield cluster


def _facts(body: Mapping[str, Any]) -> ClusterFacts:
    return ClusterFacts(
        infra=body["infra"],
        region=REGION,
        sku=None,
        num_nodes=body["num_nodes"],
        hourly_usd=HOURLY_USD * body["num_nodes"],
    )


def _keeps(process: psutil.Process, name: str) -> bool:
    """Whether it is what holds a cluster's machines, not one of their processes."""
    try:
        is_keeper = machine.__name__ in process.cmdline()
        return is_keeper and process.environ().get(machine.MARK) == name
    except psutil.Error:
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
