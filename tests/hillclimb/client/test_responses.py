"""Every method of the client against the real application: the payload holds all that came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hillclimb.protocol.payloads.base import Payload
from tests.api.datasets.samples import lines, task, tasks
from tests.hillclimb.client.conftest import Project

ROLLOUT = "1/0/eval/sampled/booking/eval/t/2/0"
FEWER = {"source": "fleet@1", "filters": {"env_keys": ["booking"]}}
EXCLUSION = {"scope": "task", "key": "booking-001", "reason": "broken"}

READS: dict[str, Callable[[Project], Payload]] = {
    "presets": lambda p: p.client.presets(),
    "preset": lambda p: p.client.preset("qwen3-8b-8xh100"),
    "runs": lambda p: p.client.runs(limit=2),
    "run": lambda p: p.client.run(p.rented_id),
    "clusters": lambda p: p.client.clusters(p.rented_id),
    "project_clusters": lambda p: p.client.project_clusters(),
    "cloud_exclusions": lambda p: p.client.cloud_exclusions(),
    "orphans": lambda p: p.client.orphans(),
    "budget": lambda p: p.client.budget(p.rented_id),
    "limits": lambda p: p.client.limits(),
    "events": lambda p: p.client.events(p.run_id, limit=3),
    "guards": lambda p: p.client.guards(p.run_id),
    "metrics": lambda p: p.client.metrics(p.run_id),
    "evals": lambda p: p.client.evals(p.run_id),
    "compute": lambda p: p.client.compute(p.run_id),
    "rescorings": lambda p: p.client.rescorings(p.run_id),
    "report": lambda p: p.client.report(p.run_id),
    "probe": lambda p: p.client.probe(p.probe_id),
    "validation": lambda p: p.client.validation(p.validation_id),
    "trajectories": lambda p: p.client.trajectories(p.run_id, limit=5),
    "trajectory": lambda p: p.client.trajectory(p.run_id, ROLLOUT),
    "tokens": lambda p: p.client.tokens(p.run_id, ROLLOUT, turn=0, start=1, limit=1),
    "prompts": lambda p: p.client.prompts(p.run_id),
    "logs": lambda p: p.client.logs(p.run_id),
    "ready": lambda p: p.client.ready(),
}
WRITES: dict[str, Callable[[Project], Payload]] = {
    "terminate_orphan": lambda p: p.client.terminate_orphan("hc-abcd-lost-1"),
    "extend_budget": lambda p: p.client.extend_budget(p.rented_id, usd=5.0),
    "set_limits": lambda p: p.client.set_limits({"usd": 9.0, "max_clusters": 3}),
    "clear_cloud_exclusion": lambda p: p.client.clear_cloud_exclusion(
        p.client.cloud_exclusions().data[0].id
    ),
}


def dumped(payload: Payload) -> object:
    return payload.model_dump(mode="json", exclude_unset=True)


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_a_payload_holds_all_that_came(project: Project, name: str) -> None:
    payload = (READS | WRITES)[name](project)
    assert dumped(payload) == project.recorder.last
    assert isinstance(payload, Payload)


def test_payloads_of_datasets_hold_all_that_came(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    repeated = [task("booking", 2), task("booking", 3, key="copy")]
    file.write_bytes(lines([*tasks(booking=40, github=20), *repeated]))
    datasets = project.client.datasets
    calls: dict[str, Callable[[], Payload]] = {
        "create": lambda: datasets.create("fleet", file, {"split": {"policy": "rank"}}),
        "again": lambda: datasets.create("fleet", None, FEWER),
        "list": datasets.list,
        "get": lambda: datasets.get("fleet"),
        "versions": lambda: datasets.versions("fleet"),
        "version": lambda: datasets.version("fleet"),
        "tasks": lambda: datasets.tasks("fleet", limit=3),
        "task": lambda: datasets.task("fleet", "booking-001"),
        "diff": lambda: datasets.diff("fleet", 1),
        "lint": lambda: datasets.lint("fleet", options={"min_env_variables": 1.0}),
        "exclude": lambda: datasets.exclude("fleet", [EXCLUSION]),
        "exclusions": lambda: datasets.exclusions("fleet", also_past=True),
        "include": lambda: datasets.include("fleet", datasets.exclusions("fleet").data[0].id),
    }
    for name, call in calls.items():
        payload = call()
        assert dumped(payload) == project.recorder.last, name
        assert isinstance(payload, Payload)
