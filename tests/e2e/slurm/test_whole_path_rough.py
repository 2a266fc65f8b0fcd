"""One stack and one Slurm, and whatever can go wrong between them: nothing is ever left.

The order is that of the file. What each run has to show is its own end, exactly one job per
cluster, and an empty queue.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.protocol.rundir import EXIT, ExitRecord
from hillclimb.stack.system.poll import wait_until
from tests.e2e.slurm.cluster import NAME
from tests.e2e.slurm.conftest import Phases
from tests.e2e.slurm.fixtures.prime import SOLD_OUT, SoldOutPlatform
from tests.e2e.slurm.stack import (
    ON_PRIME,
    ON_SLURM,
    RentingStack,
    moment,
    tiny_spec,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("slurm"),
]
LONG = {"total_steps": 400, "train_batch_size": 4, "mini_batch_size": 4}


@pytest.fixture(autouse=True)
def nothing_is_left(stack: RentingStack) -> Iterator[None]:
    # A cluster of another file whose machines were taken away can leave its folder.
    before = cluster_folders(stack)
    yield
    assert stack.slurm.empty()
    folders = cluster_folders(stack) - before
    assert not [file for folder in folders for file in files_left(folder)]


def cluster_folders(stack: RentingStack) -> set[Path]:
    return set(stack.slurm.directory.glob("home/.sky_clusters/*"))


def files_left(folder: Path) -> list[Path]:
    """Files that are still in a cluster's folder, but for the history of its shells.

    SkyPilot's script deletes the folder while shells of the job still end, and a shell that ends
    later makes it anew, for the file of its commands.
    """
    return [each for each in folder.rglob("*") if each.is_file() and each.name != ".bash_history"]


def newest_checkpoint(stack: RentingStack, run_id: str) -> int:
    """The step of the newest whole checkpoint; 0 before the first."""
    found = stack.get(f"/v1/runs/{run_id}/checkpoints")["data"]
    return int(found[0]["step"]) if found else 0


def sweep_killed_job(stack: RentingStack, name: str) -> None:
    """Remove the folder of a job that was killed from outside; raises where data are left in it.

    SkyPilot's script deletes it at once, while processes of the job still end: one may make an
    empty folder or the file of a lock anew, and the trainer, asked to leave, writes its exit record
    between the two looks of `rm`. Nobody comes back for those.
    """
    for folder in stack.slurm.directory.glob(f"home/.sky_clusters/{name}-*"):
        files = [each for each in files_left(folder) if each.stat().st_size]
        assert [each for each in files if each.name != EXIT] == []
        for record in files:
            assert ExitRecord.model_validate_json(record.read_bytes()).reason
        shutil.rmtree(folder)


def num_jobs(stack: RentingStack, name: str) -> int:
    """How many jobs SkyPilot has run on a live cluster, by the folders of their logs."""
    return len(list(stack.slurm.directory.glob(f"home/.sky_clusters/{name}-*/sky_logs/*-att_*")))


def cancel(stack: RentingStack, run_id: str) -> None:
    assert stack.http.post(f"/v1/runs/{run_id}/cancel").is_success


def test_machines_that_nobody_has_end_the_run_with_the_reason(
    stack: RentingStack, phases: Phases
) -> None:
    many = {"infra": f"slurm/{NAME}", "accelerators": "H100:16"}
    run_id = stack.submit(tiny_spec(stack.python, many))
    with phases.phase("unsatisfiable: ended"):
        run = stack.until_ended(run_id)
    assert run["status"] == "failed"
    assert run["end_reason"]["code"] == "cluster_refused", run["end_reason"]
    assert [each["spent"]["usd"] for each in stack.clusters(run_id)] == [0.0]


def test_a_failing_job_ends_the_run_and_its_cluster(stack: RentingStack, phases: Phases) -> None:
    run_id = stack.submit(tiny_spec(stack.python, model={"source": "/nowhere/model"}))
    with phases.phase("job failure: ended, cluster gone"):
        run = stack.until_ended(run_id)
    assert (run["status"], run["attempt"]) == ("failed", 1), stack.tails()
    assert "/nowhere/model" in run["end_reason"]["message"]
    assert [each["running_at"] is not None for each in stack.clusters(run_id)] == [True]


def test_a_worker_killed_after_the_launch_finds_it_again_and_a_cancel_ends_it(
    stack: RentingStack, gates: Path, phases: Phases
) -> None:
    (gates / "hold").touch()
    run_id = stack.submit(tiny_spec(stack.python, schedule=LONG))
    stack.until((gates / "asked").exists)
    cluster = stack.clusters(run_id)[0]
    assert cluster["state"] == "pending", "the launch is asked for, and not recorded"
    old = stack.pid("cluster-worker")
    os.killpg(old, signal.SIGKILL)
    (gates / "hold").unlink()
    stack.until(lambda: stack.pid("cluster-worker") not in (old, -1))
    with phases.phase("worker killed: up"):
        cluster = stack.until_cluster(run_id, "running")
    stack.until_step(run_id, 1)
    assert num_jobs(stack, cluster["name"]) == 1
    assert len(stack.slurm.jobs()) == 1
    cancel(stack, run_id)
    with phases.phase("cancel in training: cluster gone"):
        run = stack.until_ended(run_id)
    assert (run["status"], run["attempt"]) == ("cancelled", 1)


def test_a_run_that_is_cancelled_in_its_launch_leaves_no_cluster(
    stack: RentingStack, phases: Phases
) -> None:
    run_id = stack.submit(tiny_spec(stack.python, schedule=LONG))
    stack.until_cluster(run_id, "provisioning")
    cancel(stack, run_id)
    with phases.phase("cancel in launch: cluster gone"):
        run = stack.until_ended(run_id)
    assert run["status"] == "cancelled"
    assert len(stack.clusters(run_id)) == 1


def test_a_killed_api_server_costs_no_run_and_no_second_job(
    stack: RentingStack, phases: Phases
) -> None:
    """The nodes cannot reach the API: everything passes through the blob store."""
    run_id = stack.submit(tiny_spec(stack.python, skypilot={"api_reachable": False}))
    stack.until_cluster(run_id, "provisioning")
    old = stack.pid("sky-api")
    os.kill(old, signal.SIGKILL)
    stack.until(lambda: stack.pid("sky-api") not in (old, -1) and stack.is_ready("sky-api"))
    with phases.phase("API server killed in the launch: up"):
        cluster = stack.until_cluster(run_id, "running")
    assert wait_until(lambda: num_jobs(stack, cluster["name"]) > 0, deadline_s=60)
    assert num_jobs(stack, cluster["name"]) == 1
    with phases.phase("relay: up to gone"):
        run = stack.until_ended(run_id)
    assert (run["status"], run["attempt"]) == ("succeeded", 1), stack.tails()
    assert len(stack.events(run_id, "step.completed")) == 2
    assert {each["step"] for each in stack.get(f"/v1/runs/{run_id}/evals")["data"]} == {0, 2}


def test_a_sold_out_platform_is_passed_over_for_the_next_candidate(
    stack: RentingStack, prime: SoldOutPlatform, phases: Phases
) -> None:
    # A foreign cloud's machines could not reach an API on loopback: the spec has to say so.
    away = {"api_reachable": False}
    run_id = stack.submit(tiny_spec(stack.python, ON_PRIME, ON_SLURM, skypilot=away))
    with phases.phase("failover: up"):
        cluster = stack.until_cluster(run_id, "running")
    assert prime.wanted
    sold_out, taken = cluster["offers"]
    assert (sold_out["infra"], sold_out["outcome"]) == ("primeintellect", "refused")
    assert SOLD_OUT in sold_out["message"]
    assert (taken["infra"], taken["outcome"]) == ("slurm", "up")
    run = stack.until_ended(run_id)
    assert (run["status"], run["attempt"]) == ("succeeded", 1), (run["end_reason"], stack.tails())


def test_machines_taken_away_are_replaced_and_training_goes_on_from_the_checkpoint(
    stack: RentingStack, phases: Phases
) -> None:
    steps = {"total_steps": 40, "train_batch_size": 4, "mini_batch_size": 4}
    run_id = stack.submit(tiny_spec(stack.python, schedule=steps))
    # Not `until_step`: a step is reported before its checkpoint is written.
    stack.until(lambda: newest_checkpoint(stack, run_id) >= 3)
    ((job, _, _),) = stack.slurm.jobs()
    stack.slurm.cancel(job)
    with phases.phase("machines taken away: second cluster up"):
        second = stack.until_cluster(run_id, "running", number=2)
    run = stack.until_ended(run_id)
    assert (run["status"], run["attempt"]) == ("succeeded", 2), (run["end_reason"], stack.tails())
    started = [each["data"] for each in stack.events(run_id, "trainer.started")]
    assert started[0]["resumed_from_step"] is None
    assert started[1]["resumed_from_step"] >= 3
    first = stack.clusters(run_id)[0]
    assert moment(first["terminated_at"]) <= moment(second["running_at"]), "one cluster at a time"
    sweep_killed_job(stack, first["name"])
