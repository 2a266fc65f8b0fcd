"""A context that the model does not have is not rented."""

from __future__ import annotations

from typing import Any

from hillclimb.hardware.estimate import estimate
from hillclimb.hardware.plan import hardware_plan
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.run import RunSpec
from tests.hillclimb.hardware.rented import YARN, candidate, qwen3_8b, rented


def problems(**sections: Any) -> tuple[str, ...]:
    return estimate(qwen3_8b(**sections), candidate(), 1).problems


def test_a_preset_without_its_rope_is_refused_with_the_number() -> None:
    stretched = preset("qwen3-8b-8xh100").spec
    bare = stretched | {"model": stretched["model"] | {"rope": None}}
    taken, refused = (hardware_plan(RunSpec.model_validate(each)) for each in (stretched, bare))
    assert taken is not None
    assert taken.reasons == ()
    assert refused is not None
    assert refused.refusal is not None
    said = "rollout.max_sequence_length (65536) is larger than the model's 40960 positions"
    assert said in refused.refusal
    assert "rollout.max_sequence_length 40960" in refused.refusal, "what would do is offered"


def test_a_model_is_used_to_its_last_position_and_no_further() -> None:
    assert problems(model={"rope": None}, length=40_960) == ()
    assert "40960 positions" in problems(model={"rope": None}, length=40_961)[0]


def test_a_stretch_reaches_as_far_as_its_factor() -> None:
    assert problems(model={"rope": YARN}) == ()
    short = problems(model={"rope": YARN | {"factor": 1.5}})
    assert "larger than the 49152 positions that model.rope" in short[0]
    strange = problems(model={"rope": YARN | {"original_max_position_embeddings": 65_536}})
    assert "trained with at most 40960 positions" in strange[0]


def test_a_stretch_is_known_where_the_model_is_not() -> None:
    sections = {"rollout": {"max_sequence_length": 65_536}}
    unread = {"source": "s3://bucket/model"}
    assert estimate(rented(model=unread, **sections), candidate(), 1).fits is None
    far = estimate(
        rented(model=unread | {"rope": YARN | {"factor": 1.5}}, **sections), candidate(), 1
    )
    assert far.fits is False
    assert "49152 positions" in far.problems[0]
