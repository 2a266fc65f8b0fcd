"""Which Ray is joined, and that one that was there before goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here")

from hillclimb.spec.run import RunSpec  # noqa: E402
from tests.trainer.fixtures.short_run import short_spec  # noqa: E402
from trainer.attempt.startup import StartupPhases  # noqa: E402
from trainer.errors import PlacementError, SpecError  # noqa: E402
from trainer.workers.factory import WorkerFactory  # noqa: E402
from trainer.workers.ray import workers  # noqa: E402
from trainer.workers.ray.cluster import Bundle, RayCluster, existing_address  # noqa: E402
from trainer.workers.ray.workers import _Placement, ray_workers  # noqa: E402

HEAD = """
import os, sys, time
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
import ray
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000,
         configure_logging=False, _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""
TWO_MACHINES = """
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
# Ray notes the address below, in a folder that it makes only where a Ray was started as usual.
os.environ["RAY_TMPDIR"] = sys.argv[1]
os.makedirs(sys.argv[1] + "/ray")
from ray.cluster_utils import Cluster
size = {"object_store_memory": 100_000_000}
cluster = Cluster(True, head_node_args={"num_cpus": 2, "temp_dir": sys.argv[1], **size})
cluster.add_node(num_cpus=2, **size)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def reserved(bundles: list[Bundle], environ: dict[str, str]) -> RayCluster:
    cluster = RayCluster(sum(each.cpus for each in bundles), environ)
    cluster.reserve(bundles)
    return cluster


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"SKYPILOT_NODE_IPS": "10.0.0.1", "SKYPILOT_NUM_NODES": "1"}, None),
        ({"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}, "10.0.0.1:6379"),
        ({"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}, "10.0.0.1:6379"),
        ({"SKYPILOT_NODE_IPS": "a b", "HILLCLIMB_RAY_PORT": "7000"}, "a:7000"),
        ({"SKYPILOT_NODE_IPS": "a b", "RAY_ADDRESS": "c:1"}, "c:1"),
    ],
)
def test_several_machines_have_a_cluster_to_join(
    environ: dict[str, str], expected: str | None
) -> None:
    assert existing_address(environ) == expected


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A cluster of somebody else's, with its address; joining and leaving it changes nothing."""
    folder = Path(f"/tmp/hc-test-{os.getpid()}")
    with subprocess.Popen(
        [sys.executable, "-c", getattr(request, "param", HEAD), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as head:
        assert head.stdout is not None
        assert head.stdin is not None
        address = head.stdout.readline().strip()
        assert address, "it did not start"
        yield head, address
        head.stdin.close()
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.long
def test_a_cluster_that_was_there_is_joined_and_goes_on(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    head, address = running
    cluster = reserved([Bundle(1.0)], {"RAY_ADDRESS": address})
    assert ray.get_runtime_context().gcs_address == address
    cluster.leave()
    assert not ray.is_initialized()
    assert head.poll() is None
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5):
        pass
    again = reserved([Bundle(2.0)], {"RAY_ADDRESS": address})
    again.leave()


@pytest.mark.long
def test_a_stranger_on_the_machine_does_not_join(
    running: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    """Neither without a key nor with that of the account, which Ray writes into its home."""
    _, address = running
    join = f"from ray._raylet import GcsClient; GcsClient(address={address!r})"
    file = tmp_path / ".ray" / "auth_token"
    file.parent.mkdir()

    def joining(mode: str, token: str) -> subprocess.CompletedProcess[str]:
        file.write_text(token)
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        return subprocess.run(
            [sys.executable, "-c", join],
            env=own | {"HOME": str(tmp_path), "RAY_AUTH_MODE": mode},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for mode in ("disabled", "token"):
        assert "InvalidAuthToken" in joining(mode, "f" * 64).stderr
    assert joining("token", os.environ["RAY_AUTH_TOKEN"]).returncode == 0


@pytest.mark.invariant("a Ray that is too small or absent is refused with a sentence")
def test_a_cluster_that_is_too_small_or_not_there_is_a_clear_refusal(
    running: tuple[subprocess.Popen[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.workers.ray.cluster.READY_TIMEOUT_S", 1.0)
    _, address = running
    with pytest.raises(PlacementError, match="has 2 CPUs and 0 GPUs and cannot hold"):
        reserved([Bundle(1.0), Bundle(7.0)], {"RAY_ADDRESS": address})
    assert not ray.is_initialized()


@pytest.mark.invariant("GPUs are those of the cluster, not of the machine that the trainer is on")
@pytest.mark.parametrize(
    "running", [HEAD.replace("num_cpus=2", "num_cpus=2, num_gpus=8")], indirect=True
)
def test_a_cluster_whose_gpus_are_elsewhere_is_a_cluster_of_gpus(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    """Ray is told of eight GPUs, which this machine does not have."""
    _, address = running
    cluster = RayCluster(1.0, {"RAY_ADDRESS": address})
    try:
        assert cluster.has_gpus
        cluster.reserve([Bundle(1.0, 4.0), Bundle(1.0, 4.0)])
    finally:
        cluster.leave()


def visible_gpus(spec: RunSpec, root: Path, address: str) -> dict[str, list[str]]:
    """Place engines and ranks as a run does, and return the GPUs that each process may see."""

    class Looking:
        """In place of an engine or a rank: it says what Ray has given to its process."""

        def __init__(self, *_given: object) -> None: ...

        async def gpus(self) -> list[str]:
            return os.environ["CUDA_VISIBLE_DEVICES"].split(",")

    factory = WorkerFactory(spec=spec, model_dir=root, vocab_size=1, attempt_dir=root, attempt=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "EngineActor", Looking)
        patched.setattr(workers, "LearnerActor", Looking)
        placement = _Placement(
            factory, StartupPhases(lambda _: None), {"RAY_ADDRESS": address}, has_learner=True
        )
        try:
            placed = {
                f"engine {number}": placement._engine(number)
                for number in range(spec.engine.data_parallel_size)
            } | {
                f"rank {number}": placement._rank(number)
                for number in range(spec.placement.learner_ranks)
            }
            found = ray.get([each.gpus.remote() for each in placed.values()], timeout=300)
        finally:
            placement._cluster.leave()
    return dict(zip(placed, found, strict=True))


EIGHT_GPUS = HEAD.replace("num_cpus=2", "num_cpus=32, num_gpus=8")


@pytest.mark.long
@pytest.mark.parametrize("running", [EIGHT_GPUS], indirect=True)
def test_an_engine_and_its_rank_see_the_same_gpu_with_ipc_and_others_without(
    running: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    """Ray is told of eight GPUs; which process may use which is its own arithmetic."""
    _, address = running

    def spec(ranks: int, **engine: Any) -> RunSpec:
        sections = {"type": "vllm", "dtype": "bfloat16"} | engine
        placement = {"type": "ray", "learner_ranks": ranks}
        return short_spec(tmp_path, experimental=True, engine=sections, placement=placement)

    shared = visible_gpus(spec(3, weight_transport="ipc", data_parallel_size=3), tmp_path, address)
    pairs = [(shared[f"engine {each}"], shared[f"rank {each}"]) for each in range(3)]
    assert all(engine == rank for engine, rank in pairs)
    assert len({engine for ((engine,), _) in pairs}) == 3
    split = spec(4, weight_transport="nccl", tensor_parallel_size=4)
    apart = visible_gpus(split, tmp_path, address)
    assert [len(each) for each in apart.values()] == [4, 1, 1, 1, 1]
    assert sorted(gpu for each in apart.values() for gpu in each) == list("01234567")


@pytest.mark.long
@pytest.mark.parametrize("running", [TWO_MACHINES], indirect=True)
def test_a_run_is_not_spread_over_machines_unasked(
    running: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    _, address = running
    factory = WorkerFactory(
        spec=short_spec(tmp_path, placement={"type": "ray"}),
        model_dir=tmp_path,
        vocab_size=1,
        attempt_dir=tmp_path,
        attempt=1,
    )
    with pytest.raises(SpecError, match="has 2 machines"):
        ray_workers(factory, StartupPhases(lambda _: None), {"RAY_ADDRESS": address})
    assert not ray.is_initialized()


@pytest.mark.long
def test_a_cluster_of_its_own_leaves_nothing_and_takes_no_signal() -> None:
    asked: list[int] = []
    before_all = signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    began = time.monotonic()
    cluster = reserved([Bundle(1.0), Bundle(1.0), Bundle(1.0)], {})
    try:
        assert time.monotonic() - began < 120
        address = ray.get_runtime_context().gcs_address
        assert address.startswith("127.0.0.1:")
        # Folders are named after their process: other tests start clusters beside this one.
        (made,) = Path("/tmp").glob(f"hillclimb-ray-{os.getpid()}-*")
        signal.raise_signal(signal.SIGTERM)
    finally:
        cluster.leave()
    signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before_all)
    assert asked == [signal.SIGTERM] * 2
    assert not made.exists()
    host, port = address.rsplit(":", 1)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=5)


def test_a_ray_that_ends_without_a_word_is_told_by_the_kind_of_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it ends where a run is cancelled while Ray starts."""

    def ended(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(ray, "init", ended)
    with pytest.raises(PlacementError, match=r"^Ray at this machine: AssertionError$"):
        RayCluster(1, {})
