"""Several copies of the engine, and several rollout workers, under one learner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hillclimb.protocol.events import StepCompleted
from tests.trainer.fixtures.scripted import CountingProvider, solved_by_done
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.workers.ray.test_workers import workers
from trainer.jobs.train.loop import Trainer


@pytest.mark.long
async def test_two_engines_share_the_rollouts_get_the_weights_and_end(tmp_path: Path) -> None:
    """Rollout workers talk to the engines themselves: their counters have to be asked for."""
    run = ShortRun(
        tmp_path,
        placement={"type": "ray", "rollout_workers": 2},
        engine={"data_parallel_size": 2},
        schedule={"total_steps": 2},
        eval={"interval": 1},
    )
    trainer = run.build(provider=CountingProvider(solved_by_done))
    assert [len(workers(name)) for name in ("Engine", "Learner", "Rollout")] == [2, 1, 2]
    engines = trainer._parts.workers.engines
    await trainer.train()
    assert [engine.weight_version for engine in engines] == [2, 2]
    assert all(engine.stats().num_sampled_tokens > 0 for engine in engines)
    await closed_by_force(run, trainer)
    assert workers("") == []
    steps = run.events(StepCompleted)
    assert [len(event.outcomes) for event in steps] == [16, 16]
    assert all(row.score is not None for event in steps for row in event.outcomes)
    for event in steps:
        drawn_in_step = event.metrics["generate/avg_num_tokens"] * len(event.outcomes)
        assert event.metrics["generate/num_sampled_tokens"] == pytest.approx(drawn_in_step)


async def closed_by_force(run: ShortRun, trainer: Trainer) -> None:
    """As a second Ctrl-C does it: the closing itself is cancelled."""
    closing = asyncio.create_task(run.finish_without_training(trainer))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    run.journal.close(drain_s=0.0)
