"""Each documented set of inputs of the two old workflows becomes a run that trains on minifleet."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hillclimb.cli.terminal.exits import Exit
from hillclimb.spec.rules.dotted_keys import set_key
from tests.hillclimb.cli.first_hour.own_stack import ROOT, environment_in, stop_in

pytestmark = pytest.mark.long

Terminal = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL_RUN = """\
modality: tool_use
env_key: github          # Single environment
max_tasks: 4             # Few tasks
max_steps: 10            # Tinker only
"""
"""The runbook's block `Testing a Small Run`, as it stands there."""

GUIDE = """\
trainer:
  policy:
    model: {path: Qwen/Qwen2.5-1.5B-Instruct}
    optimizer_config: {lr: 1e-6}
  algorithm: {advantage_estimator: grpo}
  train_batch_size: 4
  epochs: 20
  ckpt_interval: 10
generator: {max_turns: 50}
"""
"""The guide's table `Key Configuration`, with its defaults."""

TASK_FILE = """\
resources: {accelerators: "H100:1", any_of: [{cloud: lambda}, {cloud: runpod}, {cloud: vast}]}
envs: {MODALITY: tool_use, ENV_KEY: "", MAX_TASKS: "", FLEET_API_KEY: "", WANDB_API_KEY: ""}
run: |
  python -m integrations.fleet.entrypoints.main_fleet \\
    trainer.policy.model.path="Qwen/Qwen3-8B" trainer.policy.optimizer_config.lr=1e-6 \\
    trainer.train_batch_size=4 trainer.epochs=20 generator.max_turns=50 trainer.ckpt_interval=10
"""
"""A SkyPilot task as `sky launch skyrl-train/tasks/openenv-fleet-grpo.yaml` takes it."""

OLD_WORKFLOWS = ("fleet-train.yaml", "fleet-train-tinker.yaml")
SHORT = (
    "schedule.epochs=null",
    "schedule.total_steps=1",
    "data.eval_tasks_per_env=1",
    # In one process: the small run of the runbook is the one that starts Ray and vLLM.
    "placement.type=inline",
    "engine.type=torch",
)
TRAINED = (Exit.OK, Exit.NOTHING_LEARNED)
"""One step of a tiny model may find no gradient: it trained all the same."""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Commands of a stack that runs."""
    folder = tmp_path_factory.mktemp("stack")
    environment = environment_in(folder)

    def do(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["hillclimb", *words],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )

    try:
        started = do("up", "--detach")
        assert started.returncode == 0, started.stderr
        yield do
    finally:
        stop_in(folder, environment)


def files(folder: Path) -> dict[str, Path]:
    """Write the files of people who come from the old workflows; return them by what they are."""
    written = {}
    for name, text in {"small": SMALL_RUN, "guide": GUIDE, "task": TASK_FILE}.items():
        written[name] = folder / f"{name}.yaml"
        written[name].write_text(text)
    return written | {name: ROOT / "examples" / "github" / name for name in OLD_WORKFLOWS}


def migrated(terminal: Terminal, file: Path, folder: Path) -> Path:
    spec = folder / "spec.yaml"
    done = terminal("migrate", str(file), "--local")
    assert done.returncode == 0, done.stderr
    spec.write_text(done.stdout)
    return spec


def trained(terminal: Terminal, spec: Path, *settings: str) -> dict[str, Any]:
    """Submit and watch as docs/migrating.md says; return the run."""
    options = [word for each in settings for word in ("--set", each)]
    done = terminal("submit", str(spec), *options, "--watch")
    assert done.returncode in TRAINED, done.stdout + done.stderr
    run: dict[str, Any] = json.loads(terminal("show", "@last", "--json").stdout)
    assert run["status"] == "succeeded"
    return run


def step_of(run: dict[str, Any]) -> int:
    return int(run["progress"]["step"])


def test_the_small_run_of_the_runbook_trains_as_it_is_written(
    terminal: Terminal, tmp_path: Path
) -> None:
    run = trained(terminal, migrated(terminal, files(tmp_path)["small"], tmp_path))
    spec = run["spec"]
    assert (step_of(run), spec["data"]["env_keys"]) == (10, ["github"])
    assert (spec["data"]["max_tasks"], spec["data"]["modality"]) == (4, "tool_use")


@pytest.mark.parametrize("name", ["guide", "task", *OLD_WORKFLOWS])
def test_every_other_set_of_inputs_trains_for_a_step(
    terminal: Terminal, tmp_path: Path, name: str
) -> None:
    spec = migrated(terminal, files(tmp_path)[name], tmp_path)
    assert step_of(trained(terminal, spec, *SHORT)) == 1


def test_computer_use_is_refused_in_a_sentence(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text('{"modality": "computer_use", "env_key": "amazon"}')
    done = terminal("migrate", str(file))
    assert done.returncode == Exit.REFUSED
    assert "supports no images" in done.stderr


def test_old_names_over_http_are_answered_with_the_spec_that_trains(
    terminal: Terminal, tmp_path: Path
) -> None:
    exported = json.loads(terminal("env", "--json").stdout)
    headers = {"Authorization": f"Bearer {exported['HILLCLIMB_API_KEY']}"}
    old = {"modality": "tool_use", "env_key": "github", "max_tasks": "4", "max_steps": "1"}
    old |= {
        "batch_size": "4",
        "n_samples_per_prompt": "4",
        "trainer.policy.optimizer_config.lr": "1e-4",
    }
    with httpx.Client(base_url=exported["HILLCLIMB_API_URL"], headers=headers) as client:
        refused = client.post("/v1/runs", json={"name": "old names", **old})
        assert refused.status_code == 422
        spec: dict[str, Any] = {"name": "old names"}
        answers = {error["pointer"]: error["message"] for error in refused.json()["errors"]}
        for name in old:
            places = re.findall(r"(?:set|and) (\S+) to (\[.*?\]|[^\s;]+)", answers[f"/{name}"])
            assert places, answers[f"/{name}"]
            for key, value in places:
                set_key(spec, key, value if value.isidentifier() else json.loads(value))
        for name, value in {"cloud": "any", "task_name": "openenv-fleet-grpo"}.items():
            answer = client.post("/v1/runs", json={"name": "old names", name: value}).json()
            assert "hillclimb submit" in next(
                error["message"] for error in answer["errors"] if error["pointer"] == f"/{name}"
            )
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    run = trained(terminal, file, "data.eval_tasks_per_env=1")
    assert step_of(run) == 1
