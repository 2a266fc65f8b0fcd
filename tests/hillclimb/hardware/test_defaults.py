"""What suits the tiny models is refused for large ones on a GPU, before a machine is rented."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.hardware.model.defaults import why_unsuited
from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.shapes import TINY
from hillclimb.hardware.plan import hardware_plan
from tests.hillclimb.hardware.rented import QWEN3_8B, qwen3_8b, rented

LARGE = KNOWN["Qwen3-8B"]


@pytest.mark.parametrize(
    ("sections", "remedy"),
    [
        ({"learner": {"policy_dtype": "float32"}}, "attention of a model of 8.2 billion"),
        ({"engine": {"dtype": "float32"}}, "set it to bfloat16, and engine.type to vllm"),
        ({"optimizer": {"lr": 1.1e-5}}, "set it to 1e-05 or less (the presets have 1e-6)"),
    ],
)
def test_what_suits_a_tiny_model_is_refused(sections: dict[str, Any], remedy: str) -> None:
    (reason,) = why_unsuited(qwen3_8b(**sections), LARGE)
    assert remedy in reason
    plan = hardware_plan(qwen3_8b(**sections))
    assert plan is not None
    assert plan.refusal is not None
    assert remedy in plan.refusal


def test_the_plain_defaults_are_refused_by_name() -> None:
    plan = hardware_plan(rented(model={"source": QWEN3_8B}))
    assert plan is not None
    assert plan.refusal is not None
    for setting in ("engine.dtype", "learner.policy_dtype", "optimizer.lr"):
        assert f"{setting} is" in plan.refusal


def test_a_small_model_has_its_defaults_and_adapters_their_own_rate() -> None:
    assert not list(why_unsuited(rented(), TINY))
    adapters = {"learner": {"lora": {}}, "engine": {"weight_transport": "lora"}}
    assert not list(why_unsuited(qwen3_8b(optimizer={"lr": 2e-4}, **adapters), LARGE))


def test_adapters_of_a_small_model_in_float32_are_refused_on_a_gpu_where_vllm_serves_them() -> None:
    adapters = {"learner": {"lora": {}}, "engine": {"type": "vllm", "dtype": "float32"}}
    (reason,) = why_unsuited(rented(**adapters), TINY)
    assert "serves no adapters" in reason
    merged = {"engine": {"type": "vllm", "dtype": "float32", "weight_transport": "shm"}}
    assert not list(why_unsuited(rented(**adapters | merged), TINY))
    rounded = {"engine": {"type": "vllm", "dtype": "bfloat16"}}
    assert not list(why_unsuited(rented(**adapters | rounded), TINY))


def test_an_evaluation_has_no_learner() -> None:
    spec = qwen3_8b(kind="eval", learner={"policy_dtype": "float32"}, optimizer={"lr": 2e-4})
    assert not list(why_unsuited(spec, LARGE))
