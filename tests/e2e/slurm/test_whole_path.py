"""Our API, Celery, SkyPilot's real API server, a gang of two nodes, Ray, training, and back."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.slurm.conftest import Phases
from tests.e2e.slurm.stack import RentingStack, moment, tiny_spec

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.xdist_group("slurm"),
]
NODES = ("127.0.0.2", "127.0.0.3")


def test_a_run_is_carried_out_by_a_gang_and_nothing_is_left(
    stack: RentingStack, phases: Phases
) -> None:
    spec = tiny_spec(
        stack.python,
        skypilot={"num_nodes": 2},
        placement={"type": "ray"},
        experimental=True,  # a Ray of several machines
    )
    with phases.phase("request"):
        run_id = stack.submit(spec)
    run = stack.until_ended(run_id)
    assert run["status"] == "succeeded", (run["end_reason"], stack.tails())
    assert stack.slurm.empty()

    # On a machine that is too busy Ray gives up after 30 s: then the run has got another cluster.
    *lost, cluster = stack.clusters(run_id)
    phases.other["clusters before the one that trained"] = len(lost)
    assert (cluster["infra"], cluster["num_nodes"], cluster["cause"]) == ("slurm", 2, None)
    assert cluster["hourly_usd"] >= 40.0
    assert cluster["spent"]["usd"] > 0.0
    assert [(each["infra"], each["outcome"]) for each in cluster["offers"]] == [("slurm", "up")]

    said = stack.get(f"/v1/runs/{run_id}/logs", component="node")["text"]
    for ip in NODES:
        assert f"{ip} (" in said
    assert said.count("8 GPUs (NVIDIA H100") == 2
    assert len(stack.events(run_id, "step.completed")) == 2
    evals = stack.get(f"/v1/runs/{run_id}/evals")["data"]
    assert {each["step"] for each in evals} == {0, 2}
    assert all(each["all"]["num_tasks"] == 4 for each in evals)
    assert all(each["all"]["pass_at_n"]["k"] == 2 for each in evals)

    phases.seconds |= seconds(run, cluster, said, stack.events(run_id))
    phases.other["USD"] = round(cluster["spent"]["usd"], 3)


def seconds(
    run: dict[str, Any], cluster: dict[str, Any], said: str, events: list[dict[str, Any]]
) -> dict[str, float]:
    """What each phase took, by the times of the service and of the first node's log."""
    own = [each for each in events if each["attempt"] == run["attempt"]]
    first = {each["type"]: moment(each["created_at"]) for each in reversed(own)}
    marks = {
        "asked for": moment(cluster["created_at"]),
        "machines up, job submitted": moment(cluster["running_at"]),
        "environment set up, attempt taken": first["attempt.claimed"],
        "Ray on the first node": said_at(said, "Ray answers at"),
        "Ray on both, every machine tested": said_at(said, "started the trainer"),
        "trainer's workers started": first["trainer.started"],
        "trained, pass rates back": first["trainer.ended"],
        "cluster gone": moment(cluster["terminated_at"]),
    }
    times = list(marks.items())
    return {name: round(end - start, 1) for (_, start), (name, end) in pairwise(times)}


def said_at(said: str, words: str) -> float:
    """When the first node's log said so (seconds since the epoch)."""
    line = next(line for line in said.splitlines() if words in line)
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
