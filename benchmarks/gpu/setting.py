"""The device, and how large everything is: models, ranks and batches of the checklist."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from hillclimb.spec.training.model import ModelSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.inputs.model.rope import apply_rope
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank

GIB = 1024**3
Figures = dict[str, Any]
Cases = Iterator[tuple[str, Figures]]
"""What a check found, case by case; each is written as soon as it is there."""
Check = Callable[["Setting"], Cases]
TINY = replace(
    KNOWN["Qwen3-8B"],
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=512,
    num_positions=64,
)


@dataclass(frozen=True)
class Setting:
    """A device with Qwen3-8B's shape, or a CPU with a toy of it."""

    device: str
    rehearses: bool

    @property
    def shape(self) -> ModelShape:
        """Of the whole model."""
        return TINY if self.rehearses else KNOWN["Qwen3-8B"]

    def size(self, on_gpu: int, in_rehearsal: int) -> int:
        """Return the one of the two that applies."""
        return in_rehearsal if self.rehearses else on_gpu

    def config(self, layers: int) -> Qwen3Config:
        """Config of the first layers of the model."""
        shape = self.shape
        return Qwen3Config(
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocab_size,
            num_hidden_layers=min(layers, shape.num_layers),
            max_position_embeddings=shape.num_positions or 32_768,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            tie_word_embeddings=False,
        )

    def model(
        self,
        layers: int,
        *,
        rope: ModelSpec | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | None = None,
    ) -> Qwen3ForCausalLM:
        """A random policy, the same one every time."""
        torch.manual_seed(0)
        config = apply_rope(self.config(layers), rope or ModelSpec())
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device or self.device):
                return Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call, unused-ignore]
        finally:
            torch.set_default_dtype(torch.float32)

    def learner(
        self,
        *,
        dtype: Literal["float32", "bfloat16"] = "bfloat16",
        adapters: bool = False,
        offload: bool = False,
    ) -> LearnerSpec:
        """Settings of a learner that computes activations again."""
        return LearnerSpec(
            policy_dtype=dtype,
            activation_checkpointing=True,
            max_micro_tokens=4_000_000,
            cpu_offload=offload,
            lora=LoraSpec(rank=32, alpha=64) if adapters else None,
        )

    def rank(
        self,
        layers: int,
        learner: LearnerSpec | None = None,
        *,
        algorithm: AlgorithmSpec | None = None,
        rope: ModelSpec | None = None,
        device: str | None = None,
    ) -> LearnerRank:
        """A learner on a random policy."""
        learner = learner or self.learner()
        rounded = learner.lora is not None and learner.policy_dtype == "bfloat16"
        # Weights of record are float32 unless they are frozen, which then need not be made so.
        dtype = torch.bfloat16 if rounded else torch.float32
        # Offloaded weights are placed by FSDP, layer by layer.
        model = self.model(layers, rope=rope, dtype=dtype, device=device)
        options = LearnerOptions(
            learner=learner,
            algorithm=algorithm or AlgorithmSpec(),
            optimizer=OptimizerSpec(lr=1e-5),
        )
        return LearnerRank(model, options, RankGroup(device=device or self.device))

    def family(
        self, prompt: int, branches: Sequence[int], *, seed: int = 0
    ) -> tuple[TrainingSequence, ...]:
        """Rollouts of one prompt, of as many tokens more as `branches` says."""
        rng = random.Random(seed)
        vocabulary = self.shape.vocab_size
        shared = tuple(rng.randrange(vocabulary) for _ in range(prompt))
        return tuple(
            TrainingSequence(
                token_ids=shared + tuple(rng.randrange(vocabulary) for _ in range(length)),
                action_mask=(False,) * prompt + (True,) * length,
                logprobs=(0.0,) * prompt + (-12.0,) * length,
                prompt_length=prompt,
                advantage=1.0 if index % 2 else -1.0,
                temperature=1.0,
            )
            for index, length in enumerate(branches)
        )

    def batch(self, tokens: int, *, seed: int = 0) -> Batch:
        """One mini-batch of a family: a prompt of two fifths of `tokens`, and four branches.

        At 65,536 tokens that is a prompt of 26,000 and rollouts of 4,000 to 16,000.
        """
        shares = (0.1, 0.25, 0.2, 0.05)
        lengths = [max(2, int(share * tokens) - seed) for share in shares]
        prompt = tokens - sum(lengths)
        return Batch(mini_batches=(self.family(prompt, lengths, seed=seed),))


def yarn(original: int) -> ModelSpec:
    """YaRN over four times the `original` positions."""
    return ModelSpec.model_validate(
        {"rope": {"factor": 4.0, "original_max_position_embeddings": original}}
    )


def clear(device: str) -> None:
    """Forget what earlier checks have left in memory."""
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def peak_gib(device: str) -> float | None:
    """GiB of tensors at most since `clear`; not known on a CPU."""
    return None if device == "cpu" else torch.cuda.max_memory_allocated() / GIB
