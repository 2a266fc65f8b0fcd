"""Splits over GPUs that vLLM or Ray cannot do are not rented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hillclimb.hardware.estimate import estimate
from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.tensor_parallel import why_indivisible
from hillclimb.hardware.plan import hardware_plan
from hillclimb.spec.training.engine import EngineSpec
from tests.hillclimb.hardware.rented import candidate, qwen3_8b


def test_heads_that_do_not_divide_are_refused_with_sizes_that_do() -> None:
    spec = qwen3_8b(
        engine={"tensor_parallel_size": 3, "data_parallel_size": 1}, placement={"learner_ranks": 5}
    )
    plan = hardware_plan(spec)
    assert plan is not None
    assert plan.refusal is not None
    assert "engine.tensor_parallel_size 3 does not divide the model" in plan.refusal
    assert "32 attention heads" in plan.refusal
    assert "use one of 1, 2, 4, 8, 16, 32" in plan.refusal


@pytest.mark.parametrize(
    ("model", "size", "is_cut"),
    [
        ("Qwen3-8B", 8, True),
        ("Qwen3-8B", 16, True),  # keys and values are copied
        ("Qwen3-14B", 5, False),  # 40 heads, 8 of keys and values
        ("Qwen3-14B", 40, False),  # an MLP of 17,408
        ("Qwen3-32B", 2, True),
        ("Qwen3-30B-A3B", 8, True),  # 4 heads of keys and values are copied, experts are cut
        ("Qwen3-30B-A3B", 32, True),
        ("Qwen3-235B-A22B", 64, True),
        ("Qwen3-30B-A3B", 64, False),  # 32 heads
    ],
)
def test_sizes_are_as_vllm_takes_them(model: str, size: int, is_cut: bool) -> None:
    engine = EngineSpec(type="vllm", tensor_parallel_size=size)
    assert (why_indivisible(engine, KNOWN[model]) is None) is is_cut
    widths = replace(
        KNOWN[model], num_heads=size, num_kv_heads=1, intermediate_size=size, experts=None
    )
    assert why_indivisible(engine, widths) is None


def test_experts_are_cut_by_width_into_no_more_parts_than_there_are_experts() -> None:
    shape = KNOWN["Qwen3-30B-A3B"]
    assert shape.experts is not None
    for changed in ({"width": 769}, {"num": 1, "per_token": 1}):
        experts = replace(shape.experts, **changed)
        engine = EngineSpec(type="vllm", tensor_parallel_size=2)
        why = why_indivisible(engine, replace(shape, experts=experts))
        assert why is not None
        assert f"experts {experts.width} wide" in why
    # Its dense MLP is of another width, which no layer has.
    assert why_indivisible(engine, replace(shape, intermediate_size=1)) is None


@pytest.mark.parametrize(("share", "fits"), [(1.0, False), (0.96, True)])
def test_a_share_of_a_gpu_leaves_room_for_cuda(share: float, fits: bool) -> None:
    found = estimate(qwen3_8b(engine={"gpu_memory_utilization": share}), candidate(), 1)
    assert found.fits is fits
    said = (
        "engine.gpu_memory_utilization 1 leaves no room for CUDA's own memory and 2.3 GiB of"
        " arriving weights on one H100"
    )
    assert any(said in each for each in found.problems) is not fits


def gang(engines: int) -> Any:
    """Nine GPUs on three nodes, engines of two."""
    engine = {"tensor_parallel_size": 2, "data_parallel_size": engines}
    return hardware_plan(
        qwen3_8b(
            {"infra": "lambda", "accelerators": "H200:3"},
            num_nodes=3,
            length=8192 * 2,
            engine=engine,
            learner={"cpu_offload": True},
            placement={"learner_ranks": 1},
        )
    )


def test_engines_that_would_lie_over_two_nodes_have_no_place() -> None:
    assert gang(3).refusal is None
    refused = gang(4).refusal
    assert "have room for 3 engines of engine.tensor_parallel_size 2" in refused
