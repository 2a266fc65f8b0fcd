"""A rank's passes on a GPU, over fake tensors: what fits together, and which kernels are called."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.engines.cuda.wheels.wheels import on_pretended_gpus, skip_without_wheels

skip_without_wheels()

FAMILIES = ("qwen3", "qwen2", "llama")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    answer: dict[str, Any] = on_pretended_gpus("computing")
    return answer


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_a_layer_is_one_call_of_variable_length(
    family: str, found: dict[str, Any]
) -> None:
    """Two layers, forward and again in the backward pass, which is a call of its own."""
    calls = found[f"{family} bfloat16"]
    assert calls["_varlen_attn"] == 4
    assert calls["_varlen_attn_backward"] == 2
    assert not any("scaled_dot_product" in name for name in calls)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_kernel_is_cudnns_in_float32_either(family: str, found: dict[str, Any]) -> None:
    calls = found[f"{family} float32"]
    assert "_varlen_attn" not in calls
    assert not any("cudnn" in name for name in calls)


def test_families_of_several_branches_are_differentiated_both_ways(found: dict[str, Any]) -> None:
    assert found["one call"] == {"_varlen_attn": 1, "_varlen_attn_backward": 1}
    branches = found["per branch"]
    assert branches["_scaled_dot_product_flash_attention"] == 6
    assert branches["_scaled_dot_product_flash_attention_backward"] == 6


def test_the_optimizer_is_one_kernel(found: dict[str, Any]) -> None:
    assert found["qwen3 bfloat16"]["_fused_adamw_"] >= 1


def test_what_a_gpu_is_known_by_is_read_from_it(found: dict[str, Any]) -> None:
    assert found["peak_flops"] == pytest.approx(989e12, rel=0.01)
    assert found["peak_memory_gib"] >= 0.0
