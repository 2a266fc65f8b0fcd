"""One Slurm, one SkyPilot API server and a sold-out Prime Intellect for all tests here."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from hillclimb.stack.servers.sky import client_environment, queue_port
from hillclimb.stack.system.ports import accepts
from tests.e2e.slurm.cluster import LocalSlurm, local_slurm, what_is_missing
from tests.e2e.slurm.fixtures.catalog import write_catalog
from tests.e2e.slurm.fixtures.gated import FACTORY, GATES
from tests.e2e.slurm.fixtures.prime import SoldOutPlatform, sold_out_platform
from tests.e2e.slurm.fixtures.skyserver import RunningSky, running_sky
from tests.e2e.slurm.stack import RentingStack, renting_stack
from worker.skypilot.port import Clouds, CloudsUnreachable

E2E, FIGURES = "HILLCLIMB_E2E", "HILLCLIMB_E2E_FIGURES"
PREFIX = "hc-test-"
PATIENCE_S = 900.0


@dataclass(slots=True)
class Phases:
    """Seconds of each phase, in order; printed at the end, and written where FIGURES says."""

    seconds: dict[str, float] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 1)


@pytest.fixture(scope="session")
def phases(request: pytest.FixtureRequest) -> Iterator[Phases]:
    found = Phases()
    yield found
    text = json.dumps({"seconds": found.seconds, **found.other}, indent=2)
    if target := os.environ.get(FIGURES):
        Path(target).write_text(text + "\n")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else warnings.catch_warnings():
        print(f"\n{text}")


@pytest.fixture(scope="session")
def prime() -> Iterator[SoldOutPlatform]:
    with sold_out_platform() as platform:
        yield platform


@pytest.fixture(scope="session")
def slurm(phases: Phases) -> Iterator[LocalSlurm]:
    if os.environ.get(E2E) != "1":
        pytest.skip("minutes long: `make e2e` runs it")
    if missing := what_is_missing():
        pytest.skip(missing)
    with phases.phase("slurm up"):
        manager = local_slurm()
        cluster = manager.__enter__()
    try:
        yield cluster
    finally:
        with phases.phase("slurm down"):
            manager.__exit__(None, None, None)
        assert cluster.processes() == []
        assert not any(accepts(port) for port in cluster.ports.values())


@pytest.fixture(scope="session")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `tests.e2e.slurm.fixtures.gated` looks."""
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="session")
def stack(
    slurm: LocalSlurm, prime: SoldOutPlatform, gates: Path, phases: Phases
) -> Iterator[RentingStack]:
    """The whole service, and a Slurm that it rents from."""
    with phases.phase("stack up"):
        manager = renting_stack(slurm, prime, {"HILLCLIMB_CLOUDS": FACTORY, GATES: str(gates)})
        running = manager.__enter__()
    try:
        yield running
        phases.other["jobs left in squeue"] = len(slurm.jobs())
    finally:
        with phases.phase("stack down"):
            manager.__exit__(None, None, None)


@pytest.fixture(scope="module")
def sky(slurm: LocalSlurm, prime: SoldOutPlatform, phases: Phases) -> Iterator[RunningSky]:
    root = Path(tempfile.mkdtemp(prefix="hc-sky-", dir="/tmp"))
    origin = root / "operator"
    origin.mkdir()
    slurm.configure(origin)
    prime.configure(origin)
    write_catalog(origin)
    with phases.phase("API server up"):
        manager = running_sky(root / "state", origin)
        server = manager.__enter__()
    try:
        yield server
        phases.other["API server MB"] = server.resident_mb()
    finally:
        with phases.phase("API server down"):
            manager.__exit__(None, None, None)
        assert server.processes() == []
        assert not accepts(server.server.port)
        assert not accepts(queue_port(server.server.port))
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def make_clouds(sky: RunningSky) -> Callable[[str], Clouds]:
    """What makes `Clouds` as the worker does: by the environment, without knowing the class."""
    os.environ |= client_environment(sky.server.url, sky.server.directory / "client")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("worker.skypilot.skypilot")
    made: Callable[[str], Clouds] = module.make_clouds
    return made


class Patient:
    """Asks again what nobody answered in time, as the driver does at its next tick."""

    def __init__(self, clouds: Clouds) -> None:
        self._clouds = clouds

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._clouds, name)

        def asked(*arguments: Any) -> Any:
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    return call(*arguments)
                except CloudsUnreachable:
                    if name == "launch" or time.monotonic() > until:
                        raise

        return asked


@pytest.fixture(scope="module")
def clouds(make_clouds: Callable[[str], Clouds]) -> Clouds:
    patient: Any = Patient(make_clouds(PREFIX))
    return cast("Clouds", patient)
