"""A whole run of the trainer in a process of its own: vLLM and a learner in turns on one GPU.

The run of `make demo`, shorter: miniature apps, the tiny model that ships with Hillclimb, GRPO in
bfloat16 with token-level importance weights, weights by CUDA IPC, Ray, evaluations, checkpoints.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.gpu.serving.turns import has_vllm
from benchmarks.gpu.setting import Cases, Figures, Setting
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import (
    EVENTS,
    CheckpointQualified,
    CheckpointRefused,
    CheckpointSaved,
    EvalCompleted,
    Event,
    StepCompleted,
    TrainerStarted,
)
from hillclimb.protocol.rundir import AttemptDir, ExitRecord
from hillclimb.spec.run import RunSpec
from trainer.engines.canary import BFLOAT16_TOLERANCE

DEMO = Path(__file__).parents[3] / "examples" / "demo.yaml"
ON_A_GPU: dict[str, Any] = {
    "engine": {
        "type": "vllm",
        "dtype": "bfloat16",
        "weight_transport": "ipc",
        "gpu_memory_utilization": 0.3,
        "sleep_level": 2,
    },
    "placement": {"type": "ray", "learner_ranks": 1, "colocate": True},
    "learner": {"policy_dtype": "bfloat16"},
    "algorithm": {"off_policy_correction": {"tis_ratio_type": "token"}},
}
REHEARSED: dict[str, Any] = {"engine": {"type": "torch"}, "placement": {"type": "inline"}}
CANARY = "policy/canary_logprobs_abs_diff_mean"
KEPT = (
    "reward/avg_pass_at_1",
    CANARY,
    "policy/rollout_train_logprobs_abs_diff_mean",
    "policy/is_ratio_max",
    "timing/generate",
    "timing/policy_train",
    "timing/sync_weights",
    "timing/step",
    "trainer/tokens_per_second",
)
"""Metrics of a step."""


def whole_run(setting: Setting) -> Cases:
    """Train twelve steps, and look at what the run reports."""
    if not (setting.rehearses or has_vllm()):
        yield "run", {"skipped": "vLLM is not installed"}
        return
    with tempfile.TemporaryDirectory() as folder:
        # The trainer stores blobs beside the folder of its runs.
        spec, attempt = Path(folder) / "spec.json", AttemptDir(Path(folder) / "runs" / "run", 1)
        spec.write_text(spec_of(setting).model_dump_json())
        command = [sys.executable, "-m", "trainer", "run", "--spec", str(spec)]
        done = subprocess.run([*command, "--run-dir", str(attempt.run_dir)], check=False)
        if not attempt.exit.exists():
            raise RuntimeError(f"the trainer ended with {done.returncode} and no exit record")
        yield from cases_of(attempt, done.returncode)


def spec_of(setting: Setting) -> RunSpec:
    """Return the spec of `make demo` on one GPU; a rehearsal is one step on a CPU."""
    steps = setting.size(12, 1)
    tasks: dict[str, Any] = {"env_keys": ["booking"]} if setting.rehearses else {}
    spec = yaml.safe_load(DEMO.read_text()) | (REHEARSED if setting.rehearses else ON_A_GPU)
    spec |= {"name": "gpu", "experimental": True, "checkpoints": {"interval": setting.size(6, 1)}}
    spec["data"] |= {"eval_tasks_per_env": setting.size(20, 4), **tasks}
    spec["schedule"] |= {"total_steps": steps}
    spec["schedule"] |= {"train_batch_size": 4, "mini_batch_size": 2} if setting.rehearses else {}
    spec["eval"] = {
        "interval": steps,
        "decodings": [{"name": "sampled", "temperature": 1.0}],
    }
    return RunSpec.model_validate(spec)


def cases_of(attempt: AttemptDir, exit_code: int) -> Cases:
    """Yield the start, each evaluation and step, and the end, from the files of an attempt."""
    canary: list[float] = []
    checkpoints = Counter[str]()
    for event in _events(attempt):
        if isinstance(event, TrainerStarted):
            phases = {f"{each.phase}_s": each.seconds for each in event.startup}
            yield "start", {"engine": event.engine, "versions": event.versions, **phases}
        elif isinstance(event, EvalCompleted):
            yield f"eval_{event.step}", {"pass_at_1": event.metrics["eval/all/pass_at_1"]}
        elif isinstance(event, StepCompleted):
            canary += [event.metrics[name] for name in (CANARY,) if name in event.metrics]
            yield f"step_{event.step}", _figures(event)
        elif isinstance(event, CheckpointSaved | CheckpointQualified | CheckpointRefused):
            checkpoints[event.type] += 1
    ended = ExitRecord.model_validate_json(attempt.exit.read_text())
    yield (
        "end",
        {
            "message": ended.message,
            "exit_code": exit_code,
            **checkpoints,
            "is_complete": ended.reason is ReasonCode.COMPLETED,
            "is_within_the_canarys_limit": max(canary, default=0.0) < BFLOAT16_TOLERANCE,
        },
    )


def _figures(event: StepCompleted) -> Figures:
    return {name.partition("/")[2]: event.metrics[name] for name in KEPT if name in event.metrics}


def _events(attempt: AttemptDir) -> Iterator[Event]:
    for line in attempt.events.read_bytes().splitlines():
        yield EVENTS.validate_json(line)
