"""Every preset is a spec that could be submitted: valid, eligible somewhere, and it fits."""

from __future__ import annotations

import pytest

from hillclimb.hardware.features import FEATURES
from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.presets import NoSuchPreset, preset, presets
from hillclimb.spec.run import RunSpec

NAMES = (
    "qwen3-32b",
    "qwen3-32b-8xh100",
    "qwen3-8b",
    "qwen3-8b-4xh100",
    "qwen3-8b-8xh100",
    "qwen3-8b-stepwise",
)


def test_the_presets_are_those_of_the_documents() -> None:
    assert tuple(presets()) == NAMES


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("name", NAMES)
def test_a_presets_clusters_end_themselves_when_nobody_else_does(name: str) -> None:
    spec = RunSpec.model_validate(preset(name).spec)
    assert spec.backend.skypilot is not None
    assert all(FEATURES[each.cloud].autodown for each in spec.backend.skypilot.candidates)


@pytest.mark.parametrize(
    ("name", "length"),
    [("qwen3-8b-8xh100", 65_536), ("qwen3-8b", 65_536), ("qwen3-8b-4xh100", 32_768)],
)
def test_contexts_are_as_long_as_their_names_say(name: str, length: int) -> None:
    spec = RunSpec.model_validate(preset(name).spec)
    assert spec.rollout.max_sequence_length == length
    stretched = spec.model.rope
    reach = 32_768 if stretched is None else 32_768 * stretched.factor
    assert reach == length


def test_the_step_wise_preset_differs_from_qwen3_8b_in_nothing_but_step_wise_and_its_time() -> None:
    plain, step_wise = (
        RunSpec.model_validate(preset(name).spec) for name in ("qwen3-8b", "qwen3-8b-stepwise")
    )
    assert step_wise.algorithm == plain.algorithm.model_copy(update={"step_wise": True})
    assert step_wise.schedule.step_timeout_s > plain.schedule.step_timeout_s
    expected = plain.model_copy(
        update={
            "name": step_wise.name,
            "algorithm": step_wise.algorithm,
            "schedule": plain.schedule.model_copy(
                update={"step_timeout_s": step_wise.schedule.step_timeout_s}
            ),
        }
    )
    assert step_wise == expected


def test_a_spec_taken_from_a_preset_is_its_takers_own() -> None:
    preset("qwen3-8b").spec["name"] = "mine"
    assert preset("qwen3-8b").spec["name"] == "qwen3-8b"


def test_an_unknown_preset_names_the_others() -> None:
    with pytest.raises(NoSuchPreset, match="take one of qwen3-32b, "):
        preset("qwen4")


@pytest.mark.parametrize("name", NAMES)
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
