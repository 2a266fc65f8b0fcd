"""A project with at least one object of every kind: requests of the document find something."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from sqlalchemy import update

from api.runs.journal import utc_now
from api.tables import ApiKey, CloudExclusion, OrphanedCluster, SlackLink
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.checkpoint_manifest import Manifest, ManifestFile
from hillclimb.protocol.rundir import (
    checkpoint_name,
    log_segment,
    run_key,
    tracking_file,
)
from hillclimb.protocol.validation import summarise_tasks
from tests.api.clusters.cluster_story import rented
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.api.http.dashboard.stored import store_trajectories
from tests.api.results.preflight.test_prompts import kept, rendered
from tests.api.results.preflight.test_validation import a_validation, rows, store_rows
from tests.api.scheduling.guards.guarded import Guarded

WEIGHTS = b"weights"
STEP, LAST_STEP = 20, 80
"""Steps that the examples of the document name."""
GUARD = {"no_signal": {"steps": 2, "policy": "alert"}}
ALIKE = (0.0,) * 4
EXPERIMENT = "v0.2.3"
EMAILS = ("ada@example.org", "bob@example.org")
Names = Mapping[str, Sequence[str | int]]
"""Names of what is stored, by the placeholder of the document's paths that they stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProject:
    """Names of its objects, and the tokens that some routes require."""

    names: Names
    """The first run has every kind of result."""
    at: Mapping[str, Names]
    """Other names for the same placeholders, by the beginning of a path."""
    attempt_token: str
    """Of a run that goes on."""
    node_token: str
    """Of another one."""

    def example(self, path: str, placeholder: str, *, deletes: bool) -> str | int | None:
        """Return what a placeholder of a path names: something else if it is deleted."""
        names = dict(self.names)
        for beginning, others in self.at.items():
            names |= others if path.startswith(beginning) else {}
        found = names.get(placeholder)
        return None if found is None else found[-1 if deletes else 0]


def store_project(story: Story, blobs: DiskStore, client: httpx.Client) -> StoredProject:
    """Store runs with all that they leave behind, and what people make through the API."""
    ended = trained(story, blobs)
    guarded = Guarded.begin(story, GUARD)
    guarded.steps([1, 2, 3], ALIKE)
    probe, validation = probed(story), validated(story, blobs)
    live, other = story.running(), story.running()
    waiting = [story.submit() for _ in range(3)]
    far = rented(story, hours=1.0, budget={"usd": 500.0, "hours": 100.0})
    made = create(client, ended, other=live)
    machines(story)
    assert client.post(f"/v1/runs/{waiting[2]}/pause").status_code == 200
    unneeded = story.submit()
    assert client.post(f"/v1/runs/{unneeded}/cancel").status_code == 200
    with story.database.transaction() as session:
        session.add(
            SlackLink(team_id="T1", user_id="U1", project_id=PROJECT, key_id=made["key_id"][0])
        )
    empty = client.post("/v1/projects", json={"name": "empty"})
    assert empty.status_code == 201, empty.text
    names: dict[str, list[str | int]] = {
        "run_id": [ended, guarded.run_id, probe, validation, live, far, *waiting, unneeded],
        "run": [live],
        "runner_id": [story.runner_id],
        "attempt_id": [story.plans[other].attempt_id],
        "project_id": ["prj_stranger", empty.json()["id"]],
        "step": [STEP],
        "path": ["policy/model.bin", "manifest.json"],
        "rollout_id": [f"1/{STEP}/eval/sampled/booking/eval/t/0/0"],
        "guard": ["no_signal"],
        "team_id": ["T1"],
        "user_id": ["U1"],
        "page": ["agents"],
        **made,
    }
    at: dict[str, Names] = {
        "/v1/agent-keys/": {"key_id": made.pop("agent_key_id")},
        "/v1/clouds/exclusions/": {"exclusion_id": ["exc-1"]},
        "/v1/clouds/orphans/": {"name": ["orphan-1"]},
        "/v1/compare": {"a": [f"{ended}@0"], "b": [f"{ended}@{LAST_STEP}"]},
        "/v1/issues/{issue_id}/close": {"issue_id": names["issue_id"][1:]},
        "/v1/presets/": {"name": ["qwen3-8b"]},
        "/v1/secrets/": {"name": ["fleet-prod", "spare"]},
        "/v1/datasets/{name}/versions/{number}/tasks/": {"key": ["t2"]},
        "/v1/runs/{run_id}/budget": {"run_id": [far]},
        "/v1/runs/{run_id}/cancel": {"run_id": waiting[:1]},
        "/v1/runs/{run_id}/guards": {"run_id": [guarded.run_id]},
        "/v1/runs/{run_id}/pause": {"run_id": waiting[1:2]},
        "/v1/runs/{run_id}/resume": {"run_id": waiting[2:]},
        "/v1/runs/{run_id}/probe": {"run_id": [probe]},
        "/v1/runs/{run_id}/validation": {"run_id": [validation]},
    }
    del names["agent_key_id"]
    return StoredProject(
        names=names,
        at=at,
        attempt_token=story.plans[live].attempt_token,
        node_token=story.plans[other].attempt_token,
    )


def trained(story: Story, blobs: DiskStore) -> str:
    """Return a run that ended, with its files."""
    run_id = story.running(spec(env_keys=("booking", "github")))
    story.push(run_id, rendered(story, run_id, booking="a", github="b"))
    kept(blobs, run_id, "booking", "github")
    for step in (0, STEP, LAST_STEP):
        if step == STEP:
            story.push(run_id, story.step(run_id, step, {"booking": 0.5, "github": 0.2}))
        rates = {"booking": 0.3 + step / 100, "github": 0.5}
        story.push(run_id, story.evaluation(run_id, step, rates, tasks=8))
    story.push(run_id, story.checkpoint(run_id, STEP))
    store_trajectories(blobs, run_id, [f"booking-{number}" for number in range(8)])
    blobs.put(run_key(run_id, log_segment(1, 1)), b"2026-01-02 INFO trainer: begun\n" * 20)
    blobs.put(run_key(run_id, tracking_file(1, "wandb/run-1/run-1.wandb")), b":W&B")
    store_checkpoint(blobs, run_id)
    story.finish(run_id, LAST_STEP)
    return run_id


def store_checkpoint(blobs: DiskStore, run_id: str) -> None:
    place = run_key(run_id, checkpoint_name(STEP, 1))
    file = ManifestFile(
        path="policy/model.bin",
        size_bytes=len(WEIGHTS),
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    )
    manifest = Manifest(
        run_id=run_id,
        step=STEP,
        attempt=1,
        config_hash="0" * 64,
        created_at=datetime(2026, 11, 20, tzinfo=UTC),
        files=(file,),
        sampler={},
    )
    blobs.put(f"{place}/{file.path}", WEIGHTS)
    blobs.put(f"{place}/manifest.json", manifest.model_dump_json().encode())


def probed(story: Story) -> str:
    """Return a probe that ended."""
    run_id = story.running(spec().model_copy(update={"kind": "probe"}))
    story.push(run_id, story.probed(run_id, {"booking": 4, "github": -1}, tasks=4))
    story.finish(run_id, 0)
    return run_id


def validated(story: Story, blobs: DiskStore) -> str:
    """Return a validation that ended."""
    run_id = story.running(a_validation())
    story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
    store_rows(blobs, run_id, rows())
    story.finish(run_id, 0)
    return run_id


def machines(story: Story) -> None:
    """Store an orphaned cluster and a cloud exclusion."""
    now = utc_now()
    until = now + timedelta(days=1)
    exclusion = CloudExclusion(id="exc-1", infra="lambda", reason="no capacity", until=until)
    orphan = OrphanedCluster(name="orphan-1", first_seen_at=now)
    with story.database.transaction() as session:
        session.add_all([exclusion, orphan])


def create(client: httpx.Client, ended: str, *, other: str) -> dict[str, list[str | int]]:
    """Create what a project has beside runs, through the API."""

    def post(path: str, **body: Any) -> dict[str, Any]:
        response = client.post(path, json=body)
        assert response.status_code in (200, 201), response.text
        created: dict[str, Any] = response.json()
        return created

    tasks = [{"task_key": f"t{i}", "prompt": "do it", "env_key": "booking"} for i in range(20)]
    content = "\n".join(map(json.dumps, tasks)).encode()
    assert client.post("/v1/datasets/vault/versions", content=content).status_code == 201
    for secret in ("fleet-prod", "wandb-tool-use", "spare"):
        stored = client.put(f"/v1/secrets/{secret}", json={"value": "v" * 20})
        assert stored.status_code == 200, stored.text
    for email in EMAILS:
        assert client.put(f"/v1/members/{email}", json={"role": "viewer"}).status_code == 200
    excluded = [{"scope": "task", "key": key, "reason": "flaky"} for key in ("t1", "t3")]
    exclusions = post("/v1/datasets/vault/exclusions", exclusions=excluded)["data"]
    post("/v1/experiments", key=EXPERIMENT, title="rate", hypothesis="too low")
    post(f"/v1/experiments/{EXPERIMENT}/runs", run_id=other, role="variant")
    campaign = {
        "name": "tiny",
        "base": {"data": {"env_keys": ["booking"], "eval_tasks_per_env": 8}},
        "models": [{"name": "a", "source": "builtin:tiny-qwen3-a"}],
        "decodings": [{"name": "greedy", "temperature": 0.0}],
    }
    issue = {"title": "no done", "severity": "critical", "baseline": f"{ended}@0"}
    key = {"scopes": ["runs:read"]}
    return {
        "issue_id": [post("/v1/issues", **issue)["id"] for _ in range(2)],
        "campaign_id": [post("/v1/campaigns", **campaign)["id"]],
        "key_id": [post("/v1/keys", name=name, **key)["id"] for name in ("ci", "old")],
        "agent_key_id": [
            post("/v1/agent-keys", name=name, num_runs=3)["id"] for name in ("agent", "spent")
        ],
        "webhook_id": [
            post("/v1/webhooks", url=f"https://example.org/{name}")["id"] for name in ("a", "b")
        ],
        "exclusion_id": [each["id"] for each in exclusions],
        "name": ["vault"],
        "key": [EXPERIMENT],
        "email": list(EMAILS),
        "number": [1, "latest"],
        "file": ["tasks"],
    }


def keep_the_key(story: Story, key: str) -> None:
    """Let the key count as the environment's: none of the requests can revoke it."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    with story.database.transaction() as session:
        session.execute(
            update(ApiKey).where(ApiKey.sha256 == digest).values(is_from_environment=True)
        )
