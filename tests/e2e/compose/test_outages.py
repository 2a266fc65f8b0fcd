"""The network between two services is cut while a run trains: nothing is lost, nothing is twice."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from hillclimb.stack.system.poll import wait_until
from tests.e2e.compose.deployment import WIRED, Deployment

CUT_S = float(os.environ.get("HILLCLIMB_CUT_S", "15"))
"""Longer than heartbeats and polls, shorter than a lease; the variable tries minutes."""
RECOVERY_S = 60.0 + CUT_S
STEPS = 5_000
"""More than the run completes meanwhile: it is cancelled at the end."""
SPEC: dict[str, Any] = {
    "name": "cut",
    "engine": {"type": "torch"},
    "placement": {"type": "inline"},
    "data": {"env_keys": ["booking"], "train_tasks_per_env": 20, "eval_tasks_per_env": 4},
    "environment": {"max_turns": 2},
    "rollout": {"n_samples_per_prompt": 2, "max_generate_length": 16},
    "schedule": {"total_steps": STEPS, "train_batch_size": 2, "mini_batch_size": 2},
    "eval": {"interval": 0},
    "checkpoints": {"interval": STEPS},
}


class Trained:
    """A run that trains, as its client sees it."""

    def __init__(self, http: httpx.Client, run_id: str) -> None:
        self.http = http
        self.run_id = run_id

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/v1/runs/{self.run_id}").raise_for_status().json()
        return found

    def step(self) -> int:
        try:
            return int(self.read()["progress"]["step"])
        except httpx.HTTPError:
            return -1

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            page = self.http.get(f"/v1/runs/{self.run_id}/events?after={after}&limit=1000")
            new = page.raise_for_status().json()["data"]
            if not new:
                return found
            found += new


@pytest.fixture(scope="module")
def run_id() -> list[str]:
    """The run of the whole file, once it was submitted."""
    return []


@pytest.fixture
def run(http: httpx.Client, run_id: list[str]) -> Trained:
    if not run_id:
        answer = http.post("/v1/runs", json=SPEC)
        assert answer.status_code == 201, answer.text
        run_id.append(answer.json()["id"])
    trained = Trained(http, run_id[0])
    assert wait_until(lambda: trained.step() >= 1, deadline_s=240.0), trained.read()
    return trained


@pytest.mark.parametrize(("speaker", "to"), WIRED)
def test_a_run_goes_on_after_the_way_was_cut(
    deployment: Deployment, run: Trained, speaker: str, to: str
) -> None:
    wire = deployment.wires[speaker, to]
    before = run.step()
    wire.cut()
    try:
        time.sleep(CUT_S)
        health = httpx.get(f"http://127.0.0.1:{deployment.ports['api']}/v1/health", timeout=5.0)
        assert health.status_code == 200, "the process is alive, whatever it cannot reach"
    finally:
        wire.mend()
    assert wait_until(lambda: run.step() > before + 1, deadline_s=RECOVERY_S), run.read()
    assert run.read()["status"] == "running"


def test_events_are_without_gaps_and_each_was_stored_once(
    deployment: Deployment, run: Trained
) -> None:
    """And there was one attempt: no outage was taken for the death of its trainer."""
    run.http.post(f"/v1/runs/{run.run_id}/cancel").raise_for_status()
    assert wait_until(lambda: run.read()["status"] == "cancelled", deadline_s=120.0), run.read()
    events = run.events()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["attempt"] for event in events if event.get("attempt")} == {1}
    folder = deployment.folder / "state" / "runs" / run.run_id / "attempt-1"
    written = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    attempts = run.read()["attempts"]
    assert [each["last_trainer_seq"] for each in attempts] == [len(written)]
    steps = Counter(each["data"]["step"] for each in events if each["type"] == "step.completed")
    assert steps == Counter(each["step"] for each in written if each["type"] == "step.completed")
    assert set(steps.values()) == {1}
