"""The pages about machines of one's own: their specs are valid, their install steps the node's."""

from __future__ import annotations

import re

import yaml

from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.backend.skypilot import TrainerInstall
from hillclimb.spec.run import RunSpec
from tests.docs.pages.named_commands import ROOT
from worker.runner.settings import RunnerSettings
from worker.skypilot.node_setup import HOME, setup_script

GPU = (ROOT / "docs" / "own-gpu.md").read_text()
CLUSTER = (ROOT / "docs" / "own-cluster.md").read_text()


def test_the_spec_for_a_cluster_is_one_that_a_machine_could_carry_out() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", CLUSTER, re.DOTALL)
    plan = hardware_plan(RunSpec.model_validate(yaml.safe_load(block)))
    assert plan is not None
    assert plan.reasons == ()


def test_the_preset_of_the_page_runs_on_a_machine_of_ones_own_as_the_page_changes_it() -> None:
    (name,) = set(re.findall(r"hillclimb presets (\S+)", GPU))
    (backend,) = re.findall(r"`(backend: \{.*?\})`", GPU)
    spec = RunSpec.model_validate(preset(name).spec | yaml.safe_load(backend))
    assert spec.backend.type == "runner"
    assert hardware_plan(spec) is None, "the page says that a runner's machine has no estimate"
    assert spec.experimental


def test_the_packages_are_installed_as_on_a_rented_node() -> None:
    words = "--require-hashes --no-deps -r {folder}/trainer-gpu.txt"
    assert words.format(folder=HOME) in setup_script(TrainerInstall(), "hillclimb.whl")
    assert words.format(folder="requirements") in GPU


def test_the_variables_of_the_page_are_those_that_a_runner_needs() -> None:
    exported = re.findall(r"^\$ export (.*)$", GPU.partition("## 2b.")[2], re.MULTILINE)
    variables = dict(each.split("=", 1) for line in exported for each in line.split())
    settings = RunnerSettings.from_environment(variables)
    assert settings.blobs_url.startswith("s3://")
    assert f"`HILLCLIMB_RUNNER_SLOTS` ({settings.slots})" in GPU
    assert f"({settings.stop_timeout_s:.0f} s)" in GPU
