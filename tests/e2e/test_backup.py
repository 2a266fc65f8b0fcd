"""A stack saved in the middle of a run and restored elsewhere ends it with the same figures.

Then the run is deleted there, by the real worker and the real runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from hillclimb.stack.backup.restore import restore
from hillclimb.stack.backup.save import save
from hillclimb.stack.control import down, up_detached
from hillclimb.stack.options import StackOptions
from hillclimb.stack.state.connection import connection
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by
from tests.conformance.service import TRAINER_PYTHON

pytestmark = [pytest.mark.stack, pytest.mark.long]

DEADLINE_S = 300.0
STEPS, SAVED_AT = 6, 2
CLOCKED = ("timing/", "tokens_per_second", "peak_mem", "trajectory_time", "call_latency")
"""Parts of the names of metrics that a clock or the machine gives."""
SPEC: Mapping[str, Any] = {
    "name": "saved",
    "deterministic": True,
    "data": {"env_keys": ["booking"], "train_tasks_per_env": 60, "eval_tasks_per_env": 2},
    "environment": {"max_turns": 4},
    "rollout": {"n_samples_per_prompt": 4},
    "engine": {"type": "torch"},
    "placement": {"type": "inline"},
    "optimizer": {"lr": 1e-3},
    "schedule": {"total_steps": STEPS, "train_batch_size": 4, "mini_batch_size": 2},
    "eval": {"interval": 3},
    "checkpoints": {"interval": SAVED_AT, "keep_last": 1},
}


class Service:
    """A stack that is up, as its owner's key reaches it."""

    def __init__(self, options: StackOptions) -> None:
        up_detached(options, say=print)
        reached = connection(options.state_dir)
        assert reached is not None
        headers = {"Authorization": f"Bearer {reached.api_key}"}
        self.http = httpx.Client(base_url=reached.url, headers=headers, trust_env=False)

    def close(self) -> None:
        self.http.close()

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def ends(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of the run and return it."""
        path = f"/v1/runs/{run_id}"
        terminal = ("succeeded", "failed", "cancelled")
        assert wait_until(lambda: self.get(path)["status"] in terminal, deadline_s=DEADLINE_S)
        run: dict[str, Any] = self.get(path)
        assert (run["status"], run["progress"]["step"]) == ("succeeded", STEPS), run
        return run

    def figures(self, run_id: str) -> dict[str, Any]:
        """Metrics of the last steps that no clock gives, and the digests of the weights."""
        series = self.get(f"/v1/runs/{run_id}/metrics?from_step={SAVED_AT + 1}")["data"]
        metrics = {
            (each["name"], each["decoding"], point["step"]): point["value"]
            for each in series
            if not any(part in each["name"] for part in CLOCKED)
            for point in each["points"]
        }
        manifest = self.get(f"/v1/runs/{run_id}/checkpoints/{STEPS}")["manifest"]
        weights = {
            file["path"]: file["sha256"]
            for file in manifest["files"]
            if file["path"].startswith("policy/")
        }
        return {"metrics": metrics, "weights": weights}


def check_deletion(service: Service, options: StackOptions, run_id: str) -> None:
    """The worker deletes a run's blobs, and the runner, which asks when it starts, its folder."""
    accepted = service.http.delete(f"/v1/runs/{run_id}").raise_for_status().json()
    assert service.http.get(f"/v1/runs/{run_id}").status_code == 410
    blobs, folder = (options.state_dir / name / run_id for name in ("blobs/runs", "runs"))
    assert wait_until(lambda: not blobs.exists(), deadline_s=DEADLINE_S)

    def records() -> list[dict[str, Any]]:
        log = service.get(f"/v1/audit?target={run_id}")["data"]
        return [change for record in log for change in record["changes"]]

    def is_recorded() -> bool:
        return any(change["action"] == "deleted" for change in records())

    assert wait_until(is_recorded, deadline_s=DEADLINE_S)
    (done,) = [change["before"] for change in records() if change["action"] == "deleted"]
    assert done["num_bytes"] > 1_000_000
    assert done["num_rows"] > 500
    assert accepted["id"] == run_id
    service.close()
    assert folder.exists()
    down(options.state_dir, say=print)
    again = Service(options)
    assert wait_until(lambda: not folder.exists(), deadline_s=DEADLINE_S)
    again.close()


def test_a_run_goes_on_from_a_backup_to_the_figures_of_the_one_that_was_not_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tmp_path.chmod(0o755)
    first, second = (
        StackOptions(state_dir=tmp_path / name / "state", api_port=0, trainer_python=TRAINER_PYTHON)
        for name in ("first", "second")
    )
    backup = tmp_path / "backup"
    try:
        service = Service(first)
        run_id = service.http.post("/v1/runs", json=dict(SPEC)).raise_for_status().json()["id"]
        secret = {"value": "the-fleet-key"}
        service.http.put("/v1/secrets/FLEET_API_KEY", json=secret).raise_for_status()

        def is_saved() -> bool:
            return bool(service.get(f"/v1/runs/{run_id}/checkpoints")["data"])

        assert wait_until(is_saved, deadline_s=DEADLINE_S)
        manifest = save(first, backup, with_secrets=True, say=print)
        assert any("/checkpoints/" in saved.path for saved in manifest.files)
        at_backup = service.get(f"/v1/runs/{run_id}")
        assert at_backup["status"] in ("running", "starting"), "the run was not saved in the middle"
        assert service.ends(run_id)["attempt"] == 1
        expected = service.figures(run_id)
        assert len(expected["metrics"]) > 100
        service.close()
        down(first.state_dir, say=print)

        restore(second, backup, secrets=None, new_secrets=False, say=print)
        service = Service(second)
        run = service.ends(run_id)
        assert run["attempt"] == 2
        (resumed,) = [
            event["data"]["resumed_from_step"]
            for event in service.get(f"/v1/runs/{run_id}/events?types=trainer.started")["data"]
            if event["attempt"] == 2
        ]
        assert resumed is not None
        assert resumed >= SAVED_AT
        assert service.figures(run_id) == expected
        assert [each["name"] for each in service.get("/v1/secrets")["data"]] == ["FLEET_API_KEY"]
        check_deletion(service, second, run_id)
    finally:
        for options in (first, second):
            down(options.state_dir, say=print)
    assert [*owned_by(first.state_dir), *owned_by(second.state_dir)] == []
