"""`migrate`: the spec on standard output, everything else on standard error."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from hillclimb.cli.terminal.exits import Exit
from hillclimb.spec.run import RunSpec
from tests.hillclimb.cli.conftest import Invoke, from_json
from tests.hillclimb.client.migration.test_workflow import SKYPILOT, SMALL_RUN, TINKER


def test_the_small_run_is_migrated_submitted_and_admitted(hc: Invoke, tmp_path: Path) -> None:
    file, spec = tmp_path / "small.yaml", tmp_path / "spec.yaml"
    file.write_text(SMALL_RUN)
    migrated = hc("migrate", str(file), "--local")
    assert migrated.exit_code == Exit.OK, migrated.stderr
    assert migrated.stdout.startswith("# Migrated from small.yaml (GitHub workflow)")
    assert "hillclimb datasets create fleet-tool-use" in migrated.stderr
    spec.write_text(migrated.stdout)
    run = from_json(hc("submit", str(spec), "--json"))
    assert (run["progress"]["total"], run["spec"]["data"]["max_tasks"]) == (10, 4)
    assert run["spec"]["schedule"]["train_batch_size"] == 4


def test_every_input_of_both_workflows_becomes_a_run_of_the_local_stack(
    hc: Invoke, tmp_path: Path
) -> None:
    file, spec = tmp_path / "inputs.json", tmp_path / "spec.yaml"
    for inputs in (
        SKYPILOT | {"cloud": "runpod", "max_tasks": "40"},
        TINKER | {"env_key": "github"},
    ):
        file.write_text(json.dumps(inputs))
        spec.write_text(hc("migrate", str(file), "--local").stdout)
        assert hc("submit", str(spec)).exit_code == Exit.OK


def test_a_spec_that_would_be_refused_is_printed_with_the_reason(
    hc: Invoke, tmp_path: Path
) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps(TINKER | {"modality": "computer_use"}))
    refused = hc("migrate", str(file))
    assert refused.exit_code == Exit.REFUSED
    assert "the service would refuse" in refused.stderr
    assert yaml.safe_load(refused.stdout)["data"]["modality"] == "computer_use"
    as_json = json.loads(hc("migrate", str(file), "--json").stdout)
    assert as_json["format"] == "GitHub workflow"
    assert "no images" in as_json["problems"][0]


def test_an_unreadable_file_is_a_mistake_of_usage(hc: Invoke, tmp_path: Path) -> None:
    unreadable = hc("migrate", str(tmp_path / "missing.yaml"))
    assert (unreadable.exit_code, "cannot read" in unreadable.stderr) == (Exit.USAGE, True)
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(SKYPILOT))
    spec = from_json(hc("migrate", str(whole), "--json"))["spec"]
    assert RunSpec.model_validate(spec).name == "openenv-fleet-grpo"
