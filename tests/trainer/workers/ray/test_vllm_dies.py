"""A run whose vLLM dies inside a worker that lives on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed here")

from hillclimb.protocol.events import RunWarning, StepCompleted
from hillclimb.protocol.outcomes import StopReason
from tests.trainer.engines.vllm.late import NEEDS_VLLM
from tests.trainer.fixtures.scripted import CountingProvider, solved_after_a_slow_reset
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.workers.ray.test_workers import with_events, workers

SHORT_S = 5.0
"""A rollout's time: less than vLLM takes to start."""
pytestmark = [NEEDS_VLLM, pytest.mark.long]


def kill_vllm() -> None:
    """Kill the process in which vLLM computes: the actor around it lives on.

    The slow resets let it die before the step's first token, however busy the machine is.
    """
    ours = {each: each.name() for each in psutil.Process().children(recursive=True)}
    found = [each for each, name in ours.items() if "VLLM" in name]
    assert len(found) == 1, sorted((each.pid, name) for each, name in ours.items())
    os.kill(found[0].pid, signal.SIGKILL)


async def test_a_run_goes_on_when_vllms_own_process_dies(tmp_path: Path) -> None:
    run = ShortRun(
        tmp_path,
        model={"source": "builtin:tiny-qwen3-a"},
        rollout={"max_input_length": 900, "max_sequence_length": 1000},
        placement={"type": "ray", "learner_ranks": 1},
        engine={"type": "vllm"},
        schedule={"total_steps": 2},
        eval={"before_training": False, "interval": 0},
        environment={"max_turns": 2, "call_timeout_s": 1.0, "trajectory_timeout_s": SHORT_S},
    )
    trainer = run.build(provider=CountingProvider(solved_after_a_slow_reset))
    await with_events(trainer, run, {2: kill_vllm})
    steps = run.events(StepCompleted)
    assert [event.step for event in steps] == [1, 2]
    rows = [row for event in steps for row in event.outcomes]
    assert all(row.score is not None for row in rows)
    assert all(row.stop_reason is not StopReason.POLICY_DEADLINE for row in rows), (
        "the wait for the engine was no time of the policy's"
    )
    assert steps[1].metrics["policy/canary_logprobs_abs_diff_mean"] < 1e-4
    said = [event.message for event in run.events(RunWarning) if event.code == "worker_restarted"]
    assert len(said) == 1
    assert said[0].startswith("engine 0 died and was restarted")
    assert workers("") == []
