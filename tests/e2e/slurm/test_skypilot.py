"""The clouds' port over the real SkyPilot API server and a real Slurm of two nodes.

The tests build on one another, in this order: a gang of two nodes that starts Ray; then one
cluster of one node, got after a platform was sold out, on which jobs are cancelled, fail and are
found again after the API server was killed, until its machines are taken away.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hillclimb.spec.backend.skypilot import CandidateSpec, TrainerInstall
from hillclimb.stack.options import CODE_ROOT
from hillclimb.stack.system.poll import wait_until
from tests.e2e.slurm.cluster import NAME, LocalSlurm
from tests.e2e.slurm.conftest import PREFIX, Phases
from tests.e2e.slurm.fixtures.prime import SOLD_OUT, SoldOutPlatform
from tests.e2e.slurm.fixtures.skyserver import RunningSky
from worker.skypilot.port import (
    CloudJob,
    Clouds,
    CloudState,
    CloudsUnreachable,
    ClusterPlan,
    ErrorKind,
    JobState,
    OfferOutcome,
    RequestReport,
    RequestState,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("slurm"),
]

DEADLINE_S = 900.0
SECRET = "do-not-tell-anybody"
SHARED = f"{PREFIX}shared-1"
ON_SLURM = CandidateSpec(infra=f"slurm/{NAME}", accelerators="H100:8")
ON_PRIME = CandidateSpec(infra="primeintellect", accelerators="H100:8")

RAY = """
set -e
export RAY_USAGE_STATS_ENABLED=0
mapfile -t IPS <<< "$SKYPILOT_NODE_IPS"
HEAD=${IPS[0]}; ME=${IPS[$SKYPILOT_NODE_RANK]}; PORT=6390
ray() { "$PYTHON" -m ray.scripts.scripts "$@"; }
COMMON="--num-cpus=2 --num-gpus=$SKYPILOT_NUM_GPUS_PER_NODE --object-store-memory=100000000"
if [ "$SKYPILOT_NODE_RANK" = 0 ]; then
  ray start --head --node-ip-address=$ME --port=$PORT --include-dashboard=false \
    --temp-dir="$PLACE/ray" $COMMON
  ADDRESS=$HEAD:$PORT "$PYTHON" "$HOME/driver.py"
  ray stop --force
else
  for i in $(seq 120); do (echo > /dev/tcp/$HEAD/$PORT) 2>/dev/null && break; sleep 1; done
  ray start --address=$HEAD:$PORT --node-ip-address=$ME $COMMON --block || true
fi
"""
DRIVER = """
import json, os, time
import ray
ray.init(address=os.environ["ADDRESS"])
deadline = time.monotonic() + 90
while sum(node["Alive"] for node in ray.nodes()) < 2:
    assert time.monotonic() < deadline, ray.nodes()
    time.sleep(0.5)

@ray.remote(num_gpus=8, num_cpus=1)
def where():
    time.sleep(2)
    return ray.util.get_node_ip_address(), sorted(map(int, ray.get_gpu_ids()))

found = ray.get([where.remote(), where.remote()])
given = os.path.expanduser("~/secrets/att_1.json")
with open(given) as file:
    secret = json.load(file)["SECRET"]
others = oct(os.stat(given).st_mode & 0o077)
told = {"found": found, "secret": len(secret), "others": others, "plain": os.environ["PLAIN"]}
os.unlink(given)
shown = 0
for name in os.listdir("/proc"):
    try:
        with open(f"/proc/{name}/cmdline", "rb") as file:
            shown += secret.encode() in file.read()
    except OSError:
        pass
told["shown"] = shown
with open(os.environ["PLACE"] + "/told.json", "w") as file:
    json.dump(told, file)
"""


def plan(name: str, job: str, run: str, **changes: Any) -> ClusterPlan:
    values: dict[str, Any] = {
        "candidates": (ON_SLURM,),
        "is_ordered": True,
        "num_nodes": 1,
        "trainer": TrainerInstall(type="prebuilt", python="/usr/bin/python3"),
        "setup": "",
        "labels": {"hillclimb": "test"},
    }
    return ClusterPlan(name=name, job_name=job, run=run, **(values | changes))


def until_ended(clouds: Clouds, request_id: str) -> RequestReport:
    """Ask as the driver does, until the launch is over."""
    reports: list[RequestReport] = []

    def is_over() -> bool:
        time.sleep(1.0)
        reports.append(clouds.get_launch(request_id))
        return reports[-1].state is not RequestState.WORKING

    assert wait_until(is_over, deadline_s=DEADLINE_S), reports[-1]
    return reports[-1]


def until_job(clouds: Clouds, name: str, job_id: int, state: JobState) -> CloudJob:
    found: list[CloudJob] = []

    def is_so() -> bool:
        found[:] = [job for job in clouds.list_jobs(name) if job.id == job_id]
        return bool(found) and found[0].state is state

    assert wait_until(is_so, deadline_s=DEADLINE_S), found
    return found[0]


def end(clouds: Clouds, slurm: LocalSlurm, name: str) -> None:
    clouds.terminate(name)
    assert wait_until(lambda: name not in clouds.list_clusters(), deadline_s=DEADLINE_S)
    assert slurm.empty()


def test_prices_are_known_before_anything_is_rented(
    clouds: Clouds, slurm: LocalSlurm, phases: Phases
) -> None:
    lambda_ = CandidateSpec(infra="lambda", accelerators="H100:8")
    dear = CandidateSpec(infra="lambda", accelerators="H100:8", max_hourly_usd=40)
    candidates = (ON_SLURM, ON_PRIME, lambda_, dear)
    asked = plan(f"{PREFIX}none-1", "att_0", "true", candidates=candidates, num_nodes=2)
    with phases.phase("first prices"):
        found = clouds.list_offers(asked)
    offered = [(each.candidate, each.infra, each.hourly_usd) for each in found]
    assert (0, f"slurm/{NAME}", 40.0) in offered
    assert (1, "primeintellect/CA", 30.4) in offered
    assert (2, "lambda/us-west-1", 47.84) in offered
    assert not any(candidate == 3 for candidate, _, _ in offered)
    assert slurm.jobs() == []


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    file = tmp_path / "driver.py"
    file.write_text(DRIVER)
    return file


def test_a_gang_of_two_nodes_starts_ray_on_both(
    clouds: Clouds, slurm: LocalSlurm, sky: RunningSky, phases: Phases, driver: Path
) -> None:
    name = f"{PREFIX}gang-1"
    packages = next((CODE_ROOT / ".venv-trainer/lib").glob("python3*/site-packages"))
    place = slurm.directory / "rt"
    gang = plan(
        name,
        "att_1",
        RAY,
        num_nodes=2,
        setup="chmod -R go= ~/secrets",
        files={"~/driver.py": str(driver)},
        envs={"PYTHON": str(slurm.python_with(packages)), "PLACE": str(place), "PLAIN": "seen"},
        secrets={"SECRET": SECRET},
        secrets_path="~/secrets/att_1.json",
        idle_minutes=30,
    )
    with phases.phase("gang: launch asked"):
        request_id = clouds.launch(gang)
    assert clouds.list_launches(name) == (request_id,), "found again by its name alone"
    assert clouds.get_launch(request_id).state is RequestState.WORKING
    with phases.phase("gang: launch done"):
        report = until_ended(clouds, request_id)
    assert report.state is RequestState.DONE, report.error
    assert report.job_id == 1
    assert report.cluster is not None
    assert (report.cluster.infra, report.cluster.num_nodes) == ("slurm", 2)
    assert report.cluster.hourly_usd is not None
    assert report.cluster.hourly_usd >= 40.0
    assert [(each.infra, each.outcome) for each in report.offers] == [("slurm", OfferOutcome.UP)]
    assert clouds.list_launches(name) == ()
    with phases.phase("gang: sightings"):
        seen = clouds.list_clusters()[name]
    assert seen.state is CloudState.UP
    assert seen.cluster == report.cluster
    with phases.phase("gang: job done"):
        until_job(clouds, name, 1, JobState.SUCCEEDED)
    told = json.loads((place / "told.json").read_text())
    gpus = list(range(8))
    assert sorted(told["found"]) == [["127.0.0.2", gpus], ["127.0.0.3", gpus]]
    assert (told["secret"], told["plain"]) == (len(SECRET), "seen")
    assert (told["others"], told["shown"]) == ("0o0", 0)
    scripts = [path for path in Path("/tmp").glob("sky_*") if path.is_file()]
    assert scripts, "SkyPilot has left the scripts of setup and job"
    assert not any(SECRET in path.read_text(errors="replace") for path in scripts)
    assert [job.name for job in clouds.list_jobs(name)] == ["att_1"]
    phases.other["hourly USD of the gang"] = report.cluster.hourly_usd
    phases.other["API server MB, gang up"] = sky.resident_mb()
    with phases.phase("gang: down until gone"):
        end(clouds, slurm, name)


def test_a_sold_out_platform_is_in_the_ledger_before_the_one_that_was_taken(
    clouds: Clouds, prime: SoldOutPlatform, phases: Phases
) -> None:
    asked = plan(SHARED, "att_2", "sleep 600", candidates=(ON_PRIME, ON_SLURM), idle_minutes=30)
    with phases.phase("failover: launch done"):
        report = until_ended(clouds, clouds.launch(asked))
    assert report.state is RequestState.DONE, report.error
    assert prime.wanted[0]["pod"]["gpuCount"] == 8
    sold_out, taken = report.offers
    assert (sold_out.infra, sold_out.region) == ("primeintellect", "CA")
    assert sold_out.outcome is OfferOutcome.REFUSED
    assert sold_out.error_class == "ResourcesUnavailableError"
    assert SOLD_OUT in str(sold_out.message)
    assert sold_out.hourly_usd == 15.2
    assert (taken.infra, taken.outcome, taken.hourly_usd) == ("slurm", OfferOutcome.UP, 20.0)
    assert sold_out.seconds is not None
    assert taken.seconds is not None


def test_a_second_launch_is_a_second_job_and_it_can_be_cancelled(
    clouds: Clouds, phases: Phases
) -> None:
    report = until_ended(clouds, clouds.launch(plan(SHARED, "att_2", "sleep 600")))
    assert report.job_id == 2
    assert [(j.id, j.name, j.state.is_live) for j in clouds.list_jobs(SHARED)] == [
        (1, "att_2", True),
        (2, "att_2", True),
    ]
    with phases.phase("cancel"):
        clouds.cancel_jobs(SHARED, (2,))
        until_job(clouds, SHARED, 2, JobState.CANCELLED)
    assert [job.id for job in clouds.list_jobs(SHARED) if job.state.is_live] == [1]


def test_a_job_that_fails_is_seen_to_have_failed(clouds: Clouds, phases: Phases) -> None:
    clouds.cancel_jobs(SHARED, (1,))
    until_job(clouds, SHARED, 1, JobState.CANCELLED)
    report = until_ended(clouds, clouds.launch(plan(SHARED, "att_3", "echo boom; exit 7")))
    assert report.job_id is not None
    with phases.phase("job failure seen"):
        until_job(clouds, SHARED, report.job_id, JobState.FAILED)


def test_other_machines_under_the_same_name_are_refused(clouds: Clouds) -> None:
    report = until_ended(clouds, clouds.launch(plan(SHARED, "att_4", "true", num_nodes=2)))
    assert report.error is not None
    assert report.error.kind is ErrorKind.MISMATCH
    assert "\x1b" not in report.error.message


def test_machines_that_nobody_has_are_refused_without_asking_for_any(clouds: Clouds) -> None:
    many = CandidateSpec(infra=f"slurm/{NAME}", accelerators="H100:16")
    report = until_ended(
        clouds, clouds.launch(plan(f"{PREFIX}none-2", "att_5", "true", candidates=(many,)))
    )
    assert report.error is not None
    assert (report.error.kind, report.offers) == (ErrorKind.UNSATISFIABLE, ())
    assert clouds.list_offers(plan("x", "y", "true", candidates=(many,))) == ()


def test_an_end_of_what_is_not_there_is_no_error(clouds: Clouds) -> None:
    nobody = f"{PREFIX}nobody-1"
    clouds.terminate(nobody)
    assert nobody not in clouds.list_clusters()
    assert clouds.list_jobs(nobody) == ()
    assert clouds.list_launches(nobody) == ()


def test_a_server_that_hangs_is_unreachable_in_time(
    make_clouds: Callable[[str], Clouds], sky: RunningSky, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds = make_clouds(PREFIX)
    monkeypatch.setattr("worker.skypilot.skypilot.LOCAL_CALL_S", 4.0)
    assert sky.child is not None
    os.kill(sky.child.identity.pid, signal.SIGSTOP)
    started = time.monotonic()
    try:
        with pytest.raises(CloudsUnreachable):
            clouds.list_launches(SHARED)
        assert time.monotonic() - started < 12.0
    finally:
        os.kill(sky.child.identity.pid, signal.SIGCONT)
    assert wait_until(lambda: _answers(clouds), deadline_s=60)


def test_a_killed_server_forgets_requests_and_knows_clusters(
    clouds: Clouds,
    make_clouds: Callable[[str], Clouds],
    sky: RunningSky,
    phases: Phases,
) -> None:
    request_id = clouds.launch(plan(SHARED, "att_6", "sleep 600"))
    with phases.phase("API server killed until gone"):
        sky.kill()
    with pytest.raises(CloudsUnreachable):
        make_clouds(PREFIX).get_launch(request_id)
    with phases.phase("API server up again"):
        sky.start()
    assert clouds.get_launch(request_id).state is RequestState.FORGOTTEN
    assert clouds.list_launches(SHARED) == ()
    with phases.phase("cluster found by its name"):
        seen = clouds.list_clusters()[SHARED]
    assert seen.cluster is not None
    assert seen.cluster.hourly_usd is not None
    # A new process of the worker finds it as well.
    assert set(make_clouds(PREFIX).list_clusters()) == {SHARED}
    if not any(job.name == "att_6" for job in clouds.list_jobs(SHARED)):
        until_ended(clouds, clouds.launch(plan(SHARED, "att_6", "sleep 600")))
    assert [job.name for job in clouds.list_jobs(SHARED) if job.state.is_live] == ["att_6"]


def test_machines_that_were_taken_away_are_not_seen_any_more(
    clouds: Clouds, slurm: LocalSlurm, phases: Phases
) -> None:
    assert clouds.list_clusters()[SHARED].state is CloudState.UP
    with phases.phase("sighting of one cluster"):
        seen = clouds.get_cluster(SHARED)
    assert seen is not None
    assert seen.state is CloudState.UP
    ((job, _, _),) = [each for each in slurm.jobs() if each[1].startswith(SHARED)]
    slurm.cancel(job)
    assert slurm.empty()
    with phases.phase("preemption seen"):
        assert wait_until(lambda: clouds.get_cluster(SHARED) is None, deadline_s=DEADLINE_S)
    assert SHARED not in clouds.list_clusters()
    assert clouds.list_jobs(SHARED) == ()
    clouds.terminate(SHARED)
    assert clouds.list_clusters() == {}


def _answers(clouds: Clouds) -> bool:
    try:
        clouds.list_launches(SHARED)
    except CloudsUnreachable:
        return False
    return True
