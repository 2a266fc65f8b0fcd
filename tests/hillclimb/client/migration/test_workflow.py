"""The inputs of both workflows, as the team's guide and runbook write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hillclimb.client.imports.migration.draft import MigrationRefused
from hillclimb.client.imports.migration.migrate import Migrated, migrate
from hillclimb.spec.run import RunSpec

SMALL_RUN = """
modality: tool_use
env_key: github          # Single environment
max_tasks: 4             # Few tasks
max_steps: 10            # Tinker only
"""
SKYPILOT = {
    "modality": "tool_use",
    "env_key": "",
    "max_tasks": "",
    "cloud": "any",
    "task_name": "openenv-fleet-grpo",
}
TINKER = {
    "modality": "tool_use",
    "env_key": "",
    "max_tasks": "",
    "model_name": "Qwen/Qwen3-8B",
    "max_steps": "50",
    "batch_size": "8",
    "n_samples_per_prompt": "4",
}


def migrated(folder: Path, document: Any, name: str = "inputs.json", **options: bool) -> Migrated:
    file = folder / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return migrate(file, **options)


def test_the_documented_small_run_becomes_a_spec(tmp_path: Path) -> None:
    found = migrated(tmp_path, SMALL_RUN, "small.yaml")
    assert (found.format, found.problems) == ("GitHub workflow", ())
    spec = RunSpec.model_validate(found.spec)
    assert (spec.data.modality, spec.data.env_keys, spec.data.max_tasks) == (
        "tool_use",
        ("github",),
        4,
    )
    assert (spec.schedule.total_steps, spec.backend.type) == (10, "tinker")


def test_the_defaults_of_the_tinker_workflow_become_its_preset(tmp_path: Path) -> None:
    spec = RunSpec.model_validate(migrated(tmp_path, {"ref": "main", "inputs": TINKER}).spec)
    assert spec.model.source.startswith("hf:Qwen/Qwen3-8B@")
    schedule, samples = spec.schedule, spec.rollout.n_samples_per_prompt
    assert (schedule.total_steps, schedule.train_batch_size, samples) == (50, 8, 4)
    assert (spec.data.env_keys, spec.data.max_tasks) == ((), None)


def test_the_defaults_of_the_skypilot_workflow_become_its_preset(tmp_path: Path) -> None:
    found = migrated(tmp_path, SKYPILOT)
    spec = RunSpec.model_validate(found.spec)
    assert (spec.name, spec.schedule.epochs) == ("openenv-fleet-grpo", 20)
    assert [remark.partition(":")[0] for remark in found.remarks] == ["tasks"]
    changed = SKYPILOT | {"cloud": "vast", "env_key": "github,booking", "lr": "5e-6"}
    on_vast = RunSpec.model_validate(migrated(tmp_path, changed).spec)
    assert on_vast.backend.skypilot is not None
    assert [each.infra for each in on_vast.backend.skypilot.candidates] == ["vast"]
    assert (on_vast.data.env_keys, on_vast.optimizer.lr) == (("github", "booking"), 5e-6)


def test_a_workflows_own_file_gives_its_defaults(tmp_path: Path) -> None:
    file = """
on:
  workflow_dispatch:
    inputs:
      modality: {type: choice, default: tool_use}
      env_key: {type: string, default: ""}
      max_steps: {type: string, default: "50"}
      reviewer: {type: string, default: me}
env: {TASKS_BUCKET: fleet-internal-datasets}
jobs: {}
"""
    found = migrated(tmp_path, file, "train.yaml")
    assert found.spec["schedule"]["total_steps"] == 50
    assert "reviewer: no input of the two workflows, so it has no place" in found.remarks


def test_images_are_a_problem_that_the_service_would_have(tmp_path: Path) -> None:
    (problem,) = migrated(tmp_path, TINKER | {"modality": "computer_use"}).problems
    assert "no images" in problem


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"max_steps": 3, "cloud": "lambda"}, "leave the inputs of one of them out"),
        ({"task_name": "mine"}, "no preset was made after the task file 'mine'"),
        ({"colour": "red"}, "is of no known format: it has to be the inputs of"),
        ([1, 2], "is not a mapping"),
        ("a: [", "is neither YAML nor JSON nor TOML"),
    ],
)
def test_a_file_that_cannot_be_migrated_is_refused_with_a_sentence(
    tmp_path: Path, document: Any, sentence: str
) -> None:
    with pytest.raises(MigrationRefused, match=sentence):
        migrated(tmp_path, document)


def test_a_value_that_cannot_be_read_is_remarked_on(tmp_path: Path) -> None:
    found = migrated(tmp_path, TINKER | {"max_steps": "many"})
    assert any(
        remark.startswith("max_steps: max_steps 'many' cannot be read") for remark in found.remarks
    )
    assert found.spec["schedule"]["total_steps"] == 50


@pytest.mark.parametrize("inputs", [SKYPILOT, TINKER, SMALL_RUN])
def test_a_local_spec_keeps_the_tasks_and_steps_and_needs_no_machines(
    tmp_path: Path, inputs: Any
) -> None:
    found = migrated(tmp_path, inputs, "x.yaml", is_local=True)
    assert found.problems == ()
    spec = RunSpec.model_validate(found.spec)
    assert (spec.backend.type, spec.environment.provider) == ("runner", "minifleet")
    assert spec.model.source == "builtin:tiny-qwen3-a"
    assert not spec.experimental


def test_a_local_spec_says_which_environments_it_lacks(tmp_path: Path) -> None:
    found = migrated(tmp_path, TINKER | {"env_key": "github,wallst"}, is_local=True)
    assert found.spec["data"]["env_keys"] == ["github"]
    assert "data.env_keys: the miniature apps have no wallst" in found.remarks
