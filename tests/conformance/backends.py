"""What a backend is to the cases: how a run asks for it, and how its machines are withheld."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from tests.conformance.local_clouds import LocalClouds
from tests.conformance.service import TRAINER_PYTHON, Service, halted

INLINE = {"engine": {"type": "torch"}, "placement": {"type": "inline"}}


class BackendUnderTest(Protocol):
    """One way to carry out runs."""

    @property
    def service(self) -> Service:
        """The whole service, which is up."""
        ...

    def sections(self) -> Mapping[str, Any]:
        """Sections of a spec that ask for it."""
        ...

    def nothing_free(self) -> AbstractContextManager[None]:
        """While it lasts no run gets a place: one that is new stays `queued`."""
        ...

    def slow(self) -> AbstractContextManager[None]:
        """While it lasts an attempt that is offered is not taken: it stays `provisioning`."""
        ...

    def left(self, run_id: str) -> list[str]:
        """What is rented or kept for a run beside processes and files of this machine."""
        ...


@dataclass(frozen=True, slots=True)
class OnRunner:
    """The runner of the embedded stack."""

    service: Service

    def sections(self) -> Mapping[str, Any]:
        return INLINE

    @contextmanager
    def nothing_free(self) -> Iterator[None]:
        """The runner is told to stop, and nobody starts it again."""
        runner = psutil.Process(self.service.pid("runner"))
        supervisor = self.service.supervisor()
        with halted(supervisor):
            os.kill(runner.pid, signal.SIGTERM)
            self.service.until_so(lambda: runner.status() == psutil.STATUS_ZOMBIE)
            yield
        self.service.until_so(
            lambda: self.service.is_ready("runner") and self.service.pid("runner") != runner.pid
        )

    @contextmanager
    def slow(self) -> Iterator[None]:
        with halted(self.service.pid("runner")):
            yield

    def left(self, run_id: str) -> list[str]:
        del run_id
        return []


@dataclass(frozen=True, slots=True)
class OnTinker(OnRunner):
    """A server of the Tinker protocol computes, the trainer is on the runner."""

    url: str = ""
    """Of the server; `TINKER_BASE_URL` and `TINKER_API_KEY` of the service lead to it too."""
    model: str = ""

    def sections(self) -> Mapping[str, Any]:
        tinker = {"base_url": self.url, "base_model": self.model, "lora_rank": 8}
        return {
            "backend": {"type": "tinker", "tinker": tinker},
            "optimizer": {"lr": 0.05, "max_grad_norm": None},
        }


class OnClusters:
    """Clusters rented by the service; `clouds` are asked what there is, past the service."""

    infra = "slurm/local"
    num_nodes = 1

    def __init__(self, service: Service, clouds: LocalClouds) -> None:
        self.service = service
        self.clouds = clouds

    def sections(self) -> Mapping[str, Any]:
        sky = {
            "candidates": [{"infra": self.infra}],
            "num_nodes": self.num_nodes,
            "trainer": {"type": "prebuilt", "python": str(TRAINER_PYTHON)},
        }
        return INLINE | {"backend": {"type": "skypilot", "skypilot": sky}}

    def nothing_free(self) -> AbstractContextManager[None]:
        return limited(self.service)

    @contextmanager
    def slow(self) -> Iterator[None]:
        self.clouds.gate.touch()
        try:
            yield
        finally:
            self.clouds.gate.unlink()

    def left(self, run_id: str) -> list[str]:
        rented = self.service.get(run_id, "/clusters")["data"]
        there = self.clouds.list_clusters()
        return [each["name"] for each in rented if each["name"] in there] + [
            f"{each['name']} is {each['state']}" for each in rented if each["state"] != "terminated"
        ]


class OnGang(OnClusters):
    """Two machines each: the trainer's workers are placed on the Ray that their nodes gather."""

    num_nodes = 2

    def sections(self) -> Mapping[str, Any]:
        # A Ray of several machines is an experiment.
        return {**super().sections(), "placement": {"type": "ray"}, "experimental": True}


@contextmanager
def limited(service: Service) -> Iterator[None]:
    """The project may have no cluster, until the end of the block."""
    for_all = service.http.get("/v1/limits").raise_for_status().json()
    service.http.put("/v1/limits", json=for_all | {"max_clusters": 0}).raise_for_status()
    try:
        yield
    finally:
        service.http.put("/v1/limits", json=for_all).raise_for_status()
