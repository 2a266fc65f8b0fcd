"""The workflows of `examples/github` have the old inputs, and their commands do what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hillclimb.client.client import Client
from hillclimb.client.connection import Connection
from hillclimb.client.imports.migration.workflow import OF_SKYPILOT, OF_TINKER
from tests.api.fixtures.serving import Served

FOLDER = Path(__file__).parents[4] / "examples" / "github"
COMMON = {"modality", "env_key", "max_tasks"}
WORKFLOWS = {"fleet-train.yaml": OF_SKYPILOT, "fleet-train-tinker.yaml": OF_TINKER}


class UniqueKeys(yaml.SafeLoader):
    """A loader that refuses a key that stands twice, as GitHub does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"a key stands twice: {keys}"
        return super().construct_mapping(node, deep=deep)


def read(name: str) -> dict[Any, Any]:
    text = (FOLDER / name).read_text()
    assert "\t" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    document: dict[Any, Any] = yaml.load(text, Loader=UniqueKeys)
    return document


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_the_inputs_of_the_old_one(name: str) -> None:
    document = read(name)
    assert sorted(map(str, document)) == ["True", "jobs", "name", "permissions"]
    inputs = document[True]["workflow_dispatch"]["inputs"]
    assert set(inputs) == COMMON | WORKFLOWS[name]
    for field in inputs.values():
        assert set(field) <= {"description", "type", "default", "options"}
        assert isinstance(field["default"], str)
        assert field["default"] in field.get("options", [field["default"]])
    (job,) = document["jobs"].values()
    assert set(job) == {"runs-on", "timeout-minutes", "env", "steps"}
    for step in job["steps"]:
        assert set(step) <= {"name", "run", "if"}
        assert "${{" not in step["run"], "an input never becomes a part of a command"


def test_the_examples_are_all_here() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(WORKFLOWS)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_commands_submit_wait_and_write_the_job_page(
    name: str, served: Served, tmp_path: Path
) -> None:
    document = read(name)
    fields = document[True]["workflow_dispatch"]["inputs"]
    inputs = {key: field["default"] for key, field in fields.items()} | {"env_key": "github"}
    (job,) = document["jobs"].values()
    steps = {step["name"]: step["run"] for step in job["steps"]}
    page = tmp_path / "page.md"
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(FOLDER.parents[1]),
        "HILLCLIMB_API_URL": served.url,
        "HILLCLIMB_API_KEY": served.key,
        "INPUTS": json.dumps(inputs),
        "MIGRATE_OPTIONS": "--local",
        "JOB_URL": "https://github.com/thefleet/skyrl/actions/runs/1",
        "GITHUB_STEP_SUMMARY": str(page),
    }

    def do(step: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", steps[step]],  # as GitHub runs a step
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    for step in ("Make the spec", "Submit"):
        done = do(step)
        assert done.returncode == 0, done.stderr
    run_id = (tmp_path / "run_id").read_text().strip()
    with Client(Connection(url=served.url, api_key=served.key)) as client:
        run = client.run(run_id)
        assert (run.tags, run.links) == (["github-actions"], {"job": variables["JOB_URL"]})
        assert run.spec["data"]["env_keys"] == ["github"]
    assert do("Cancel the run with the job").returncode == 0
    waited = do("Wait")
    assert waited.returncode == 4, "the run was cancelled: the job fails"
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[0]["type"] == "run.created"
    assert do("Summary").returncode == 0
    text = page.read_text()
    assert f"{served.url}/runs/{run_id}" in text
    assert "cancelled" in text
    assert "* tasks: the workflow downloaded them" in text
