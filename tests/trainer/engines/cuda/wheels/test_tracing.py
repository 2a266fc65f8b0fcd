"""A layer is one graph for `torch.compile`, whatever the lengths of the rollouts in a pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.engines.cuda.wheels.wheels import on_pretended_gpus, skip_without_wheels

skip_without_wheels()


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    answer: dict[str, Any] = on_pretended_gpus("tracing")
    return answer


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama"])
def test_a_layer_is_traced_without_a_cut_for_families_of_any_lengths(
    family: str, found: dict[str, Any]
) -> None:
    assert found[family]["cuts"] == {}
    # One for the first lengths, and at most one more once they are seen to change.
    assert 1 <= found[family]["graphs"] <= 2
