"""One stack for all backends of this machine: clusters by `local_clouds`, a Tinker server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hillclimb.stack.options import CODE_ROOT
from tests.conformance.backends import BackendUnderTest, OnClusters, OnGang, OnRunner, OnTinker
from tests.conformance.local_clouds import FOLDER, LocalClouds, make_clouds
from tests.conformance.service import TRAINER_PYTHON, Service, running_service, write_model

MODEL_NAME = "tiny"
KEY = "tml-conformance"


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conformance").resolve()


@pytest.fixture(scope="package")
def tinker_url(place: Path) -> Iterator[str]:
    """`hillclimb tinker serve` with the tiny model."""
    with tinker_server(write_model(place / "model"), place / "tinker") as url:
        yield url


@pytest.fixture(scope="package")
def service(place: Path, tinker_url: str) -> Iterator[Service]:
    """The stack, whose operator named clouds and a Tinker server."""
    variables = {
        "HILLCLIMB_CLOUDS": f"{LocalClouds.__module__}:{make_clouds.__name__}",
        FOLDER: str(place / "clouds"),
        "HILLCLIMB_NODE_IMAGES": str(TRAINER_PYTHON),
        "TINKER_BASE_URL": tinker_url,
        "TINKER_API_KEY": KEY,
        "OMP_NUM_THREADS": "1",  # two spinning threads are slower beside other work
    }
    with running_service(place, variables) as running:
        yield running


@pytest.fixture(scope="package")
def backends(
    place: Path, service: Service, tinker_url: str
) -> Iterator[dict[str, BackendUnderTest]]:
    """By name; at the end no cluster and no machine is left."""
    clouds = LocalClouds(place / "clouds")
    yield {
        "runner": OnRunner(service),
        "clusters": OnClusters(service, clouds),
        "gang": OnGang(service, clouds),
        "tinker": OnTinker(service, url=tinker_url, model=MODEL_NAME),
    }
    assert clouds.list_clusters() == {}
    assert list((place / "clouds" / "clusters").iterdir()) == []
    assert [path.read_text() for path in (place / "clouds").glob("left-*.txt")] == []


@contextmanager
def tinker_server(model: Path, state: Path) -> Iterator[str]:
    options = ("--model", str(model), "--name", MODEL_NAME, "--api-key", KEY, "--json")
    command = [sys.executable, "-m", "hillclimb.cli", "tinker", "serve", *options]
    with subprocess.Popen(
        [*command, "--state-dir", str(state)],
        cwd=CODE_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["base_url"]
        finally:
            server.terminate()
            server.wait(30.0)
