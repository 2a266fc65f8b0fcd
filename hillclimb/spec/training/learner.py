"""The section `learner`: precision, memory and adapters of the gradient computation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Section, reject_unused


class LoraSpec(Section):
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) on a frozen model."""

    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the two factors; engines must support at least this rank."""
    alpha: Annotated[int, Field(ge=1, le=4096)] = 32
    """The product of the factors is scaled by alpha / rank."""
    target_modules: Annotated[
        tuple[
            Literal[
                "q_proj",
                "k_proj",
                "v_proj",
                "o_proj",
                "gate_proj",
                "up_proj",
                "down_proj",
                "in_proj_qkv",
                "in_proj_z",
                "out_proj",
            ],
            ...,
        ],
        Field(min_length=1, max_length=10),
    ] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Linear layers with an adapter; of a model with experts only those of its attention. The last
    three of the list are those of linear attention (Qwen3.5), which other models do not have."""


class LearnerSpec(Section):
    """Computation of the gradient; only `lora` and rounding change what is learned."""

    policy_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of forward and backward pass. Master weights, accumulated gradients and optimizer
    are float32 either way."""
    activation_checkpointing: bool = False
    """Recompute each layer in the backward pass instead of storing its activations."""
    keep_activations: Literal["none", "attention", "matmuls"] = "none"
    """Results that `activation_checkpointing` keeps all the same: those of attention, whose cost
    grows with the square of the length, or of attention and all matrix products."""
    max_micro_tokens: Annotated[int, Field(ge=1, le=4_000_000)] = 4096
    """Packed tokens of one forward and backward pass of a rank; a single sequence may be longer."""
    context_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks that share the tokens of each pass, so that a sequence takes that much less memory of
    each (DeepSpeed Ulysses, arXiv:2309.14509). It divides `placement.learner_ranks` and the model's
    attention heads; passes then have that many times `max_micro_tokens`."""
    logprob_chunk_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Action tokens whose logits over the vocabulary are in memory at once."""
    lora: LoraSpec | None = None
    """Train adapters; null trains every weight. A checkpoint needs the same `model.source`."""
    cpu_offload: bool = False
    """Keep master weights, gradients and optimizer state in the machine's memory, and run the
    optimizer there: a GPU then holds only what the pass needs. Slower, with the same result."""
    routing_replay: bool = False
    """Compute each token of a rollout by the experts that the engine chose for it, in place of
    those that the learner's router would choose (models with experts only). Needs an engine that
    returns them: vLLM on GPUs, or torch."""
    routing_replay_gib: Annotated[float, Field(gt=0, le=1024)] = 8.0
    """Most memory for the choices of the rollouts that wait for their update (GiB); a run whose
    rollouts could need more is refused."""
    optimizer_moments: Literal["float32", "bfloat16", "int8"] = "float32"
    """How AdamW's two moments are stored: in 8, 4 or 2 bytes per parameter together. They are
    float32 while they are used (docs/training-mechanics.md)."""
    store_token_values: bool = True
    """Store the learner's log-prob and entropy of every token that it learns from beside the
    trajectories, for the page of tokens (docs/dashboard.md)."""

    @model_validator(mode="after")
    def _keep_activations_is_read(self) -> Self:
        reject_unused(self, ("keep_activations",), only=("activation_checkpointing", True))
        return self
