"""The whole service with SkyPilot's API server, and a Slurm of this machine that it rents from.

`renting_stack` is all that a test of rented clusters needs: it starts the stack as `hillclimb up
--with-sky` does, with an operator's home of its own, and a blob store that the nodes reach.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from moto.server import ThreadedMotoServer

from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.state.connection import connection
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by
from tests.e2e.slurm.cluster import NAME, LocalSlurm
from tests.e2e.slurm.fixtures.catalog import write_catalog
from tests.e2e.slurm.fixtures.prime import SoldOutPlatform
from tests.hillclimb.blobs.servers import BUCKET, KEY, SECRET, make_client

UP_S, DEADLINE_S = 300.0, 1200.0
"""On two busy cores a gang takes minutes to come up, and its Ray as long."""
ENDED = ("succeeded", "failed", "cancelled")
ON_SLURM = {"infra": f"slurm/{NAME}", "accelerators": "H100:8"}
ON_PRIME = {"infra": "primeintellect", "accelerators": "H100:8"}


@dataclass(slots=True, kw_only=True)
class RentingStack:
    """The stack, up; `python` is the data plane's interpreter that the nodes have."""

    options: StackOptions
    http: httpx.Client
    slurm: LocalSlurm
    python: Path
    said: list[str] = field(default_factory=list)

    def submit(self, spec: Mapping[str, Any]) -> str:
        """Submit a run and return its id."""
        answer = self.http.post("/v1/runs", json=dict(spec))
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def get(self, path: str, **params: Any) -> Any:
        """What the API answers; one that is away is waited for."""
        until = time.monotonic() + 60.0
        while True:
            try:
                answer = self.http.get(path, params=params)
                assert answer.is_success, (answer.text, self.tails())
                return answer.json()
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def run(self, run_id: str) -> dict[str, Any]:
        """The run."""
        found: dict[str, Any] = self.get(f"/v1/runs/{run_id}")
        return found

    def clusters(self, run_id: str) -> list[dict[str, Any]]:
        """The run's clusters with their ledgers, oldest first."""
        found: list[dict[str, Any]] = self.get(f"/v1/runs/{run_id}/clusters")["data"]
        return found

    def events(self, run_id: str, kind: str | None = None) -> list[dict[str, Any]]:
        """The run's events, in order; those of one type."""
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            page = self.get(f"/v1/runs/{run_id}/events", after=after, limit=1000)["data"]
            if not page:
                return [each for each in found if kind in (None, each["type"])]
            found += page

    def until(self, condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
        """Wait; raises AssertionError with the ends of all logs."""

        def is_so() -> bool:
            time.sleep(0.5)
            return condition()

        if not wait_until(is_so, deadline_s=deadline_s):
            raise AssertionError(self.tails())

    def until_cluster(self, run_id: str, state: str, number: int = 1) -> dict[str, Any]:
        """Wait until the run's cluster of that number is so, or has gone further."""
        order = ("pending", "provisioning", "running", "terminating", "terminated")
        further = order[order.index(state) :]

        def is_so() -> bool:
            found = self.clusters(run_id)
            return len(found) >= number and found[number - 1]["state"] in further

        self.until(is_so)
        return self.clusters(run_id)[number - 1]

    def until_step(self, run_id: str, step: int) -> None:
        """Wait until the run has done so many steps; raises where it ended before."""

        def is_there() -> bool:
            run = self.run(run_id)
            assert run["status"] not in ("failed", "cancelled"), (run["end_reason"], self.tails())
            return int(run["progress"]["step"]) >= step

        self.until(is_there)

    def until_ended(self, run_id: str) -> dict[str, Any]:
        """Wait until the run is over and nothing of its clusters is left."""
        self.until(lambda: self.run(run_id)["status"] in ENDED)
        self.until(lambda: all(each["state"] == "terminated" for each in self.clusters(run_id)))
        return self.run(run_id)

    def pid(self, service: str) -> int:
        """Of a service of the stack."""
        process = status(self.options.state_dir).services[service].process
        return process.pid if process is not None else -1

    def is_ready(self, service: str) -> bool:
        """Whether a service of the stack answers."""
        return status(self.options.state_dir).services[service].state == "ready"

    def tails(self) -> str:
        """The end of every log, of the stack and of the nodes."""
        logs = sorted((self.options.state_dir / "logs").glob("*.log"))
        logs += sorted(self.slurm.directory.glob("**/run.log"))
        return "\n".join(f"== {each}\n{_tail(each)}" for each in logs)


@contextmanager
def renting_stack(
    slurm: LocalSlurm, prime: SoldOutPlatform, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[RentingStack]:
    """The stack, up for the length of the block; afterwards no process of it is left.

    `more` are variables of its services.
    """
    root = Path(tempfile.mkdtemp(prefix="hc-rent-", dir="/tmp"))
    home = root / "operator"
    home.mkdir()
    slurm.configure(home)
    prime.configure(home)
    write_catalog(home)
    variables = pytest.MonkeyPatch()
    said: list[str] = []
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for every request
    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    store.start()
    try:
        host, port = store.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        make_client(endpoint).create_bucket(Bucket=BUCKET)
        python = data_plane(slurm)
        for name, value in {**_environment(home, python), **more}.items():
            variables.setenv(name, value)
        options = StackOptions(
            state_dir=root / "state",
            api_port=0,
            with_sky=True,
            blobs_url=f"s3://{BUCKET}/runs?endpoint_url={endpoint}",
        )
        up_detached(options, say=said.append, deadline_s=UP_S)
        found = connection(options.state_dir)
        assert found is not None
        headers = {"Authorization": f"Bearer {found.api_key}"}
        with httpx.Client(base_url=found.url, headers=headers, trust_env=False, timeout=30) as http:
            yield RentingStack(options=options, http=http, slurm=slurm, python=python, said=said)
    finally:
        variables.undo()
        down(root / "state", say=said.append)
        store.stop()
    assert list(owned_by(root / "state")) == []
    shutil.rmtree(root)


def data_plane(slurm: LocalSlurm) -> Path:
    """The interpreter of the data plane's environment, as the cluster's account may run it."""
    packages = next((CODE_ROOT / ".venv-trainer/lib").glob("python3*/site-packages"))
    return slurm.python_with(packages.resolve())


def tiny_spec(python: Path, *candidates: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A run that two CPU cores end in seconds, on machines with eight H100s.

    `changes` are sections; `skypilot` is laid over the one there is.
    """
    skypilot = {
        "candidates": [dict(each) for each in candidates or (ON_SLURM,)],
        "trainer": {"type": "prebuilt", "python": str(python)},
        **changes.pop("skypilot", {}),
    }
    spec: dict[str, Any] = {
        "name": "rented",
        "backend": {"type": "skypilot", "skypilot": skypilot},
        "engine": {"type": "torch"},
        "placement": {"type": "inline"},
        "data": {"env_keys": ["booking"], "train_tasks_per_env": 8, "eval_tasks_per_env": 4},
        "rollout": {
            "n_samples_per_prompt": 4,
            "max_input_length": 880,
            "max_generate_length": 96,
            "max_sequence_length": 1024,
        },
        "schedule": {"total_steps": 2, "train_batch_size": 4, "mini_batch_size": 4},
        "eval": {
            "interval": 0,
            "decodings": [{"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": 2}],
        },
        "checkpoints": {"interval": 1},
    }
    return spec | changes


def moment(text: str) -> float:
    """Seconds since the epoch of a time that the API gave."""
    return datetime.fromisoformat(text).timestamp()


def _environment(home: Path, python: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "HILLCLIMB_NODE_SECRETS": "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY",
        "HILLCLIMB_NODE_IMAGES": str(python),
        "OMP_NUM_THREADS": "1",
    }


def _tail(log: Path) -> str:
    with suppress(OSError):
        return log.read_text(errors="replace")[-2500:]
    return ""
