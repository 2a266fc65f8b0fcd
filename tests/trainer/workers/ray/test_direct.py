"""Weights that go from the ranks' processes to vLLM's, and what an engine's death means then."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed here")

from hillclimb.protocol.events import CheckpointSaved, StepCompleted
from tests.trainer.engines.vllm.late import NEEDS_VLLM
from tests.trainer.fixtures.scripted import CountingProvider, solved_by_done
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.workers.ray.test_workers import kill_one, with_events, workers
from trainer.errors import EngineError

pytestmark = [NEEDS_VLLM, pytest.mark.long]


@pytest.mark.parametrize(("transport", "ranks"), [("nccl", 2), ("ipc", 1)])
async def test_a_run_takes_its_weights_and_ends_with_its_engine(
    transport: str, ranks: int, tmp_path: Path
) -> None:
    run = ShortRun(
        tmp_path,
        experimental=True,
        model={"source": "builtin:tiny-qwen3-a"},
        rollout={"max_input_length": 900, "max_sequence_length": 1000},
        placement={"type": "ray", "learner_ranks": ranks},
        engine={"type": "vllm", "weight_transport": transport},
        schedule={"total_steps": 3},
        eval={"before_training": False, "interval": 0},
    )
    trainer = run.build(provider=CountingProvider(solved_by_done))
    with pytest.raises(EngineError, match="a worker process died"):
        await with_events(trainer, run, {3: lambda: kill_one("EngineActor")})
    steps = run.events(StepCompleted)
    assert [event.step for event in steps] == [1, 2]
    assert all(event.metrics["policy/canary_logprobs_abs_diff_mean"] < 1e-4 for event in steps)
    assert workers("") == []


async def test_engines_and_learner_take_turns_also_after_a_resume(tmp_path: Path) -> None:
    """Without a GPU nothing is given back; calls, versions and weights are the same."""
    run = ShortRun(
        tmp_path,
        experimental=True,
        model={"source": "builtin:tiny-qwen3-a"},
        rollout={"max_input_length": 900, "max_sequence_length": 1000},
        placement={"type": "ray", "learner_ranks": 2, "colocate": True},
        engine={
            "type": "vllm", "weight_transport": "ipc", "data_parallel_size": 2, "sleep_level": 2
        },
        schedule={"total_steps": 3},
        checkpoints={"interval": 1},
        eval={"interval": 1},
        # As many could fill the engines' caches, which are asked for room then.
        environment={"max_concurrent_rollouts": 4096},
    )  # fmt: skip
    await run.train(provider=CountingProvider(solved_by_done))
    steps = run.events(StepCompleted)
    assert [event.step for event in steps] == [1, 2, 3]
    assert all(event.metrics["policy/canary_logprobs_abs_diff_mean"] < 1e-4 for event in steps)
    assert all(event.metrics["generate/avg_reserved_tokens"] > 0.0 for event in steps)
    saved = run.events(CheckpointSaved)[0]
    resumed = f"runs/{run.run_id}/{saved.path}"
    await run.train(2, resume_from=resumed, provider=CountingProvider(solved_by_done))
    again = run.events(StepCompleted, 2)
    assert [event.step for event in again] == [2, 3]
    assert all(event.metrics["policy/canary_logprobs_abs_diff_mean"] < 1e-4 for event in again)
    assert workers("") == []
