"""The estimate of a rank's memory against torch's own account of its passes on a GPU."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.trainer.engines.cuda.wheels.wheels import on_pretended_gpus, skip_without_wheels

skip_without_wheels()

from hillclimb.hardware.memory.arithmetic import largest  # noqa: E402
from hillclimb.hardware.memory.learner import CONTEXT_BYTES, SLACK, LearnerMemory  # noqa: E402
from hillclimb.hardware.model.published import KNOWN  # noqa: E402
from hillclimb.spec.training.algorithm import AlgorithmSpec  # noqa: E402
from hillclimb.spec.training.learner import LearnerSpec  # noqa: E402

CASES: dict[str, tuple[str, int, int, int, dict[str, Any]]] = {
    "8B at 65k on four": ("Qwen3-8B", 6, 65_536, 4, {}),
    "8B at 8k on eight": ("Qwen3-8B", 6, 8192, 8, {}),
    "8B on one": ("Qwen3-8B", 6, 32_768, 1, {}),
    "kept activations": ("Qwen3-8B", 4, 8192, 2, {"activation_checkpointing": False}),
    "32B on six": ("Qwen3-32B", 4, 32_768, 6, {}),
    "Qwen2.5": ("Qwen2.5-7B", 4, 32_768, 4, {}),
    "Llama 3": ("Llama-3.1-8B", 4, 32_768, 4, {}),
}
"""Model, layers, packed tokens, ranks, settings of the learner."""
ABOVE = {"8B at 8k on eight": 1.11}
"""Of few layers and short passes: most is the head's gradient in float32 beside a layer's copies,
which are not all there at once (measured: 1.103)."""


def estimated(case: str) -> float:
    """Bytes of tensors: without CUDA's context and what the allocator loses."""
    name, layers, tokens, num_ranks, settings = CASES[case]
    memory = LearnerMemory(
        shape=replace(KNOWN[name], num_layers=layers),
        learner=learner(tokens, settings),
        algorithm=AlgorithmSpec(),
        num_ranks=num_ranks,
        max_sequence_length=tokens,
        by_chunks=False,
    )
    states = sum(term.num_bytes for term in memory.states())
    passing = largest(memory.phases()).num_bytes - CONTEXT_BYTES - states
    return states + passing / (1 + SLACK)


def learner(tokens: int, settings: dict[str, Any]) -> LearnerSpec:
    usual = {"policy_dtype": "bfloat16", "activation_checkpointing": True}
    return LearnerSpec.model_validate(usual | {"max_micro_tokens": tokens} | settings)


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_within_a_tenth_of_what_a_gpu_would_hold(case: str) -> None:
    name, layers, tokens, num_ranks, settings = CASES[case]
    job = {
        "shape": asdict(replace(KNOWN[name], num_layers=layers)),
        "learner": learner(tokens, settings).model_dump(mode="json"),
        "num_ranks": num_ranks,
        "tokens": tokens,
    }
    found = on_pretended_gpus("accounting", job)["Total"]
    said = estimated(case)
    assert 0.99 < said / found < ABOVE.get(case, 1.1), (
        f"torch: {found / 2**30:.2f}, we: {said / 2**30:.2f} GiB"
    )
