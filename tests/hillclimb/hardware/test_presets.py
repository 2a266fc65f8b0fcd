"""Every preset is a spec that could be submitted: valid, eligible somewhere, and it fits."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.hardware.features import FEATURES
from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.cloud import CloudRefused, on_cloud
from hillclimb.hardware.presets.presets import ALIASES, NoSuchPreset, preset, presets
from hillclimb.spec.run import RunSpec

TINKER = "fleet-tinker-grpo"
RENTED = (
    "openenv-fleet-grpo",
    "qwen3-30b-a3b-8xh100",
    "qwen3-32b",
    "qwen3-32b-8xh100",
    "qwen3-8b",
    "qwen3-8b-4xh100",
    "qwen3-8b-8xh100",
)


def test_the_presets_are_those_of_the_documents() -> None:
    assert tuple(presets()) == (TINKER, *RENTED)


def test_the_old_names_of_task_files_are_presets() -> None:
    assert preset("openenv-fleet-grpo").name == "openenv-fleet-grpo"
    for old, name in ALIASES.items():
        assert preset(old).name == name
        assert old in preset(name).aliases


def test_the_workflows_defaults_are_those_of_the_guides() -> None:
    sky = RunSpec.model_validate(preset("openenv-fleet-grpo").spec)
    assert (sky.optimizer.lr, sky.schedule.train_batch_size, sky.schedule.epochs) == (1e-6, 4, 20)
    assert (sky.environment.max_turns, sky.checkpoints.interval) == (50, 10)
    tinker = RunSpec.model_validate(preset(TINKER).spec)
    assert (tinker.schedule.total_steps, tinker.schedule.train_batch_size) == (50, 8)
    assert tinker.rollout.n_samples_per_prompt == 4
    assert tinker.model.source.startswith("hf:Qwen/Qwen3-8B@")


def clouds(spec: dict[str, Any]) -> list[tuple[str, str]]:
    found = RunSpec.model_validate(spec).backend.skypilot
    assert found is not None
    return [(each.infra, str(each.accelerators)) for each in found.candidates]


def test_a_preset_keeps_its_machines_on_another_cloud() -> None:
    spec = preset("qwen3-8b").spec
    assert on_cloud(spec, "any") == spec
    assert clouds(on_cloud(spec, "runpod")) == [("runpod", "H200:4"), ("runpod", "B200:4")]
    assert clouds(on_cloud(spec, "lambda")) == [("lambda", "B200:4")]
    assert clouds(on_cloud(spec, "aws")) == [("aws", "H200:4"), ("aws", "B200:4")]
    with_disk = {
        "infra": "aws/us-east-1",
        "disk_gb": 500,
        "use_spot": True,
        "image": "docker:a/b:c",
    }
    backend = {"type": "skypilot", "skypilot": {"candidates": [with_disk]}}
    assert on_cloud({"backend": backend}, "aws")["backend"] == backend
    moved = on_cloud({"backend": backend}, "lambda")["backend"]["skypilot"]["candidates"]
    assert moved == [{"infra": "lambda"}]


def test_a_cloud_is_refused_where_nothing_is_rented() -> None:
    with pytest.raises(CloudRefused, match="this spec has none"):
        on_cloud(preset(TINKER).spec, "lambda")
    with pytest.raises(CloudRefused, match="there is no cloud 'mars'"):
        on_cloud(preset("qwen3-8b").spec, "mars")


@pytest.mark.parametrize("name", RENTED)
def test_a_preset_is_valid_eligible_and_fits_all_its_candidates(name: str) -> None:
    found = preset(name)
    spec = RunSpec.model_validate(found.spec)
    assert spec.name == name
    assert found.about
    assert not found.about.startswith("#")
    plan = hardware_plan(spec)
    assert plan is not None
    assert plan.reasons == ()
    assert all(each.estimate is not None and each.estimate.fits for each in plan.candidates)
    assert spec.backend.skypilot is not None
    gpus = {each.gpus for each in spec.backend.skypilot.candidates}
    sizes = spec.engine.data_parallel_size * spec.engine.tensor_parallel_size
    assert gpus == {sizes + spec.placement.learner_ranks}, "no GPU is paid for and idle"


@pytest.mark.parametrize("name", RENTED)
def test_a_presets_clusters_end_themselves_when_nobody_else_does(name: str) -> None:
    spec = RunSpec.model_validate(preset(name).spec)
    assert spec.backend.skypilot is not None
    assert all(FEATURES[each.cloud].autodown for each in spec.backend.skypilot.candidates)


@pytest.mark.parametrize(
    ("name", "length"),
    [("qwen3-8b-8xh100", 65_536), ("qwen3-8b", 65_536), ("qwen3-8b-4xh100", 65_536)],
)
def test_contexts_are_as_long_as_their_names_say(name: str, length: int) -> None:
    spec = RunSpec.model_validate(preset(name).spec)
    assert spec.rollout.max_sequence_length == length
    stretched = spec.model.rope
    reach = 32_768 if stretched is None else 32_768 * stretched.factor
    assert reach == length


def test_no_preset_pays_for_every_turn_again() -> None:
    """Also under the name of SkyRL's step-wise task file, whose context tools are not here."""
    specs = [preset(name).spec for name in (*presets(), "openenv-fleet-grpo-qwen3-8b-step-wise")]
    assert not any(RunSpec.model_validate(spec).algorithm.step_wise for spec in specs)


def test_a_spec_taken_from_a_preset_is_its_takers_own() -> None:
    preset("qwen3-8b").spec["name"] = "mine"
    assert preset("qwen3-8b").spec["name"] == "qwen3-8b"


def test_an_unknown_preset_names_the_others() -> None:
    with pytest.raises(NoSuchPreset, match="take one of fleet-tinker-grpo, "):
        preset("qwen4")


@pytest.mark.parametrize("name", RENTED)
def test_a_disk_that_is_rented_has_room_for_image_and_environment_beside_what_is_demanded(
    name: str,
) -> None:
    plan = hardware_plan(RunSpec.model_validate(preset(name).spec))
    assert plan is not None
    for each in plan.candidates:
        assert each.estimate is not None
        assert each.estimate.free_disk_gib is not None
        if (rented := each.sized.disk_gb) is not None:
            assert rented - each.estimate.free_disk_gib >= 75


@pytest.mark.parametrize("name", RENTED)
def test_presets_for_gpus_correct_for_the_other_policy_and_do_not_wait_for_it(name: str) -> None:
    """Engine and learner differ in bfloat16, and a synchronous step leaves either half idle."""
    spec = RunSpec.model_validate(preset(name).spec)
    assert spec.algorithm.off_policy_correction.tis_ratio_type == "token"
    assert 1 <= spec.schedule.max_staleness_steps <= 2


@pytest.mark.parametrize("name", RENTED)
def test_gpus_of_a_preset_compute_for_three_quarters_of_a_step_on_paper(name: str) -> None:
    plan = hardware_plan(RunSpec.model_validate(preset(name).spec))
    assert plan is not None
    for each in plan.candidates:
        assert each.estimate is not None
        assert each.estimate.step_time is not None
        assert each.estimate.step_time.busy_share >= 0.75, each.candidate.label
