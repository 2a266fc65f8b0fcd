"""The estimator's numbers against torch's: parameters, optimizer's state, peaks of passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hillclimb.hardware.memory.arithmetic import largest
from hillclimb.hardware.memory.learner import LearnerMemory
from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.shapes import ModelShape, shape_of_config
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from tests.trainer.fixtures.tiny import tiny_config, tiny_model
from tests.trainer.learners.accounted import config_of, peak_bytes
from tests.trainer.learners.recorded import batch
from trainer.inputs.model.directory import count_parameters
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank

QWEN3_8B = KNOWN["Qwen3-8B"]
SMALL = ModelShape(
    num_layers=3,
    hidden_size=512,
    intermediate_size=1536,
    num_heads=8,
    num_kv_heads=2,
    head_dim=64,
    vocab_size=4096,
    is_tied=False,
)
PASSES = ("a layer", "the head", "reducing")


def estimated(shape: ModelShape, learner: LearnerSpec, *, num_ranks: int, tokens: int) -> float:
    """What the estimator says of the same passes: no optimizer, so no moments."""
    memory = LearnerMemory(
        shape=shape,
        learner=learner,
        algorithm=AlgorithmSpec(),
        num_ranks=num_ranks,
        max_sequence_length=tokens,
        by_chunks=False,
        on_gpu=False,
    )
    phases = [each for each in memory.phases() if any(name in each.name for name in PASSES)]
    assert len(phases) == 4
    return largest(phases).num_bytes - 8 * memory.num_trained / num_ranks


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_known_shapes_have_as_many_parameters_as_their_modules(name: str) -> None:
    assert count_parameters(config_of(KNOWN[name])) == KNOWN[name].num_parameters


@pytest.mark.parametrize("lora", [None, LoraSpec(rank=4, target_modules=("q_proj", "down_proj"))])
def test_the_learner_holds_sixteen_bytes_of_every_trained_parameter(lora: LoraSpec | None) -> None:
    shape = shape_of_config(tiny_config().to_dict())
    learner = LearnerRank(tiny_model(), LearnerOptions(learner=LearnerSpec(lora=lora)))
    learner.step(batch())
    trained = learner._models.trained.values()
    held = sum(each.nbytes + each.grad.nbytes for each in trained if each.grad is not None)
    held += sum(
        each.nbytes
        for state in learner._optimizer.state.values()
        for name, each in state.items()
        if name != "step"
    )
    number = shape.num_parameters
    if lora is not None:
        number = shape.adapter_parameters(lora.rank, lora.target_modules)
    assert held == 16 * number


def cut(shape: ModelShape, *, layers: int) -> ModelShape:
    """Return the shape with that many of its layers, all with experts."""
    assert shape.experts is not None
    experts = replace(shape.experts, num_layers=layers)
    return replace(shape, num_layers=layers, experts=experts)


CASES: dict[str, tuple[ModelShape, int, dict[str, Any]]] = {
    "a layer computed again": (replace(QWEN3_8B, num_layers=3), 65_536, {}),
    "the head's scores": (replace(QWEN3_8B, num_layers=1), 4096, {"logprob_chunk_tokens": 4096}),
    "chunks of scores": (replace(QWEN3_8B, num_layers=1), 16_384, {}),
    "activations kept": (
        replace(QWEN3_8B, num_layers=3), 16_384, {"activation_checkpointing": False}
    ),
    "a sequence that four ranks share": (
        replace(QWEN3_8B, num_layers=3), 262_144, {"context_parallel_size": 4}
    ),
    "attention kept": (replace(QWEN3_8B, num_layers=4), 65_536, {"keep_activations": "attention"}),
    "matrix products kept": (
        replace(QWEN3_8B, num_layers=6), 16_384, {"keep_activations": "matmuls"}
    ),
    "with copies of keys and values": (
        replace(QWEN3_8B, num_layers=2, num_kv_heads=2), 65_536,
        {"context_parallel_size": 4, "activation_checkpointing": False},
    ),
    "float32": (replace(QWEN3_8B, num_layers=1), 16_384, {"policy_dtype": "float32"}),
    "tied": (replace(KNOWN["Qwen3-4B"], num_layers=2), 32_768, {}),
    "biases": (replace(KNOWN["Qwen2.5-7B"], num_layers=2), 32_768, {}),
    "experts": (cut(KNOWN["Qwen3-30B-A3B"], layers=2), 65_536, {}),
    "no norms of heads": (
        replace(KNOWN["Llama-3.1-8B"], num_layers=3), 16_384, {"activation_checkpointing": False}
    ),
}  # fmt: skip

QUICK = (
    "a layer computed again", "the head's scores", "chunks of scores", "experts",
    "with copies of keys and values", "attention kept", "matrix products kept",
)  # fmt: skip
"""One of each kind of memory: the others have the same kinds in models of other sizes."""


@pytest.mark.invariant("the estimate of a pass's memory is an upper bound, and a close one")
@pytest.mark.parametrize(
    "case",
    [pytest.param(each, marks=[] if each in QUICK else [pytest.mark.long]) for each in CASES],
)
def test_no_pass_takes_more_than_was_estimated_nor_much_less(case: str) -> None:
    """Within a quarter above: GPUs fetch layers ahead, which this account on a CPU does not."""
    shape, tokens, values = CASES[case]
    settings = {"policy_dtype": "bfloat16", "activation_checkpointing": True}
    share = tokens // values.get("context_parallel_size", 1)
    sizes = {"max_micro_tokens": share, "logprob_chunk_tokens": 4096}
    learner = LearnerSpec.model_validate(settings | sizes | values)
    found = peak_bytes(shape, learner, num_ranks=4, tokens=tokens)
    said = estimated(shape, learner, num_ranks=4, tokens=tokens)
    assert found <= said <= 1.25 * found, f"torch: {found / 2**30:.2f}, we: {said / 2**30:.2f} GiB"


@pytest.mark.long
def test_adapters_take_no_more_than_was_estimated() -> None:
    """Computed, not pretended: peft refuses fake tensors."""
    learner = LearnerSpec(
        activation_checkpointing=True, max_micro_tokens=2048, lora=LoraSpec(rank=8)
    )
    found = peak_bytes(SMALL, learner, num_ranks=2, tokens=2048, fake=False)
    said = estimated(SMALL, learner, num_ranks=2, tokens=2048)
    assert found <= said <= 1.35 * found, f"torch: {found / 2**20:.1f}, we: {said / 2**20:.1f} MiB"
