"""The engine's modules import beside vLLM's build for CUDA, and find its kernels for attention."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.engines.cuda.wheels.wheels import on_pretended_gpus, skip_without_wheels

skip_without_wheels()


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    answer: dict[str, Any] = on_pretended_gpus("importing")
    return answer


def test_engine_and_transfer_import_beside_compiled_kernels(found: dict[str, Any]) -> None:
    assert found["transfers"] == ["FileTransfer", "ChunkTransfer"]
    assert "vllm._C_stable_libtorch" not in found["stubs"], "the kernels themselves were imported"


def test_on_a_gpu_vllm_is_refused_no_model_and_keeps_its_own_defaults(
    found: dict[str, Any],
) -> None:
    assert found["why_not"] is None
    assert found["for_this_machine"] == {}


@pytest.mark.parametrize("cache", ["auto", "fp8"])
def test_flash_attention_is_the_first_choice_for_either_cache(
    cache: str, found: dict[str, Any]
) -> None:
    assert found["kernels"][cache]["usable"][0] == "FLASH_ATTN", found["kernels"][cache]
