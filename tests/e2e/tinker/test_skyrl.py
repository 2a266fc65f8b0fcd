"""The backend tinker against SkyRL's server (JAX on a CPU): it learns, and goes on after a restart.

`make e2e` installs the server and runs this in the data plane's environment. Where
HILLCLIMB_TINKER_FIGURES names a folder, the figures are written there.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker", reason="the data plane's environment runs this: `make e2e`")

from safetensors.torch import load_file

from hillclimb.protocol.events import CheckpointSaved, StepCompleted, TrainerStarted
from hillclimb.stack.system.ports import find_free
from tests.e2e.tinker.skyrl_server import FIGURES, MARKS, skyrl_server
from tests.trainer.fixtures.short_run import LIKELY, ShortRun
from tests.trainer.fixtures.tiny_model import write_tiny_model

pytestmark = MARKS
KEY = "tml-any"
POSITIONS = 1600
ADAPTER = "adapter/adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server is, and whose files these are."""

    root: Path
    port: int

    @property
    def model(self) -> Path:
        return self.root / "served"

    @property
    def state(self) -> Path:
        return self.root / "state"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("skyrl"), find_free())
    write_tiny_model(found.model, positions=POSITIONS, likely=LIKELY)
    patch = pytest.MonkeyPatch()
    patch.setenv("TINKER_API_KEY", KEY)
    yield found
    patch.undo()


def a_run(root: Path, place: Place, url: str) -> ShortRun:
    tinker = {
        "base_url": url,
        "base_model": str(place.model),
        "lora_rank": 8,
        "losses": "averaged",
        "call_timeout_s": 600.0,
    }
    return ShortRun(
        root,
        "run_skyrl",
        positions=POSITIONS,
        backend={"type": "tinker", "tinker": tinker},
        engine={"type": "auto"},
        optimizer={"lr": 0.05, "max_grad_norm": None},
        rollout={"n_samples_per_prompt": 8},
        schedule={"total_steps": 6},
        eval={"before_training": False, "interval": 0, "decodings": [{"name": "sampled"}]},
        checkpoints={"interval": 3},
    )


def test_a_run_on_skyrl_learns_and_goes_on_after_the_server_was_started_again(
    place: Place, tmp_path: Path
) -> None:
    with skyrl_server(place.model, place.state, port=place.port) as url:
        run = a_run(tmp_path, place, url)
        asyncio.run(run.train())
    steps = run.events(StepCompleted)
    rates = [each.metrics["reward/avg_raw_reward"] for each in steps]
    assert statistics.mean(rates[-3:]) > statistics.mean(rates[:2]) + 0.1
    for name in ("policy/canary_logprobs_abs_diff_mean", "policy/grad_norm"):
        assert all(name in each.metrics for each in steps if each.metrics["policy/num_sequences"])
    assert max(each.metrics["policy/canary_logprobs_abs_diff_mean"] for each in steps) < 1e-4
    saved = run.events(CheckpointSaved)
    assert [(each.step, each.final) for each in saved] == [(3, False), (6, True)]
    blobs = tmp_path / "blobs" / "runs" / run.run_id
    assert (
        load_file(blobs / saved[0].path / ADAPTER).keys()
        == load_file(blobs / saved[1].path / ADAPTER).keys()
    )

    with skyrl_server(place.model, place.state, port=place.port):
        key = f"runs/{run.run_id}/checkpoints/global_step_3/attempt-1"
        asyncio.run(run.train(2, resume_from=key))
    (started,) = run.events(TrainerStarted, attempt=2)
    assert started.resumed_from_step == 3
    again = run.events(StepCompleted, attempt=2)
    assert [each.step for each in again] == [4, 5, 6]
    # The same weights, optimizer, seeds and tasks as the first attempt's steps 4 to 6.
    for name in ("reward/avg_raw_reward", "policy/grad_norm"):
        assert [each.metrics[name] for each in again] == pytest.approx(
            [each.metrics[name] for each in steps[3:]], rel=1e-3
        ), name
    if target := os.environ.get(FIGURES):
        path = Path(target) / "tinker_skyrl.json"
        path.write_text(json.dumps(figures_of(steps, again), indent=2) + "\n")


def figures_of(steps: list[StepCompleted], again: list[StepCompleted]) -> dict[str, Any]:
    """What `benchmarks/results/tinker_skyrl.json` has: per step, the first attempt and the next."""
    rows = {
        "reward": "reward/avg_raw_reward",
        "grad_norm": "policy/grad_norm",
        "canary_gap": "policy/canary_logprobs_abs_diff_mean",
    }
    return {
        "server": "skyrl 0.3.0, jax on a CPU",
        "sdk": "tinker 0.24.1",
        "cores": os.cpu_count(),
        "steps": {
            name: [each.metrics.get(metric) for each in steps] for name, metric in rows.items()
        },
        "steps_after_restart_from_step_3": {
            name: [each.metrics.get(metric) for each in again] for name, metric in rows.items()
        },
    }
