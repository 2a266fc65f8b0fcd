"""Rollout workers that are processes of Ray's, with instances of a platform over the wire."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

pytest.importorskip("ray", reason="Ray is not installed here")

from hillclimb.protocol.events import StepCompleted
from hillclimb.protocol.outcomes import OutcomeStatus
from tests.trainer.envs.fleet_server import API_KEY, HEADERS, fleet_server_thread
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.workers.ray.test_workers import workers
from trainer.jobs.train.wiring import build_trainer

NUM_WORKERS, MAX_INSTANCES = 2, 3


@pytest.mark.long
async def test_rollout_workers_share_instances_and_leave_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    with fleet_server_thread() as url:
        run = ShortRun(
            tmp_path,
            positions=4000,
            data={"env_keys": ["booking"], "train_tasks_per_env": 4, "eval_tasks_per_env": 1},
            environment={
                "provider": "fleet",
                "fleet": {"base_url": url, "max_instances": MAX_INSTANCES},
                "max_turns": 2,
            },
            placement={"type": "ray", "rollout_workers": NUM_WORKERS},
            rollout={
                "n_samples_per_prompt": 4,
                "max_input_length": 3900,
                "max_generate_length": 8,
                "max_sequence_length": 4000,
            },
            schedule={"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 1},
            eval={"before_training": False, "interval": 0},
        )
        trainer = build_trainer(run.begin())
        assert len(workers("RolloutActor")) == NUM_WORKERS
        await run.finish(trainer)
        async with httpx.AsyncClient(base_url=url, headers=HEADERS) as server:
            found = (await server.get("/admin/stats")).raise_for_status().json()["instances"]
    (step,) = run.events(StepCompleted)
    assert [row.status for row in step.outcomes] == [OutcomeStatus.GRADED] * 8
    # One worker holds two at once, the other one: never more than the spec allows.
    limit = step.metrics["environment/booking/provider/concurrency_limit"]
    assert MAX_INSTANCES // NUM_WORKERS <= limit <= MAX_INSTANCES - MAX_INSTANCES // NUM_WORKERS
    assert found["created"] >= 8
    assert found["running"] == 0
    assert found["ended"] == {"deleted": found["created"]}
