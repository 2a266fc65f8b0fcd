"""The device, and how large everything is: models, ranks and batches of the checklist."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from hillclimb.hardware.model.published import KNOWN
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from hillclimb.spec.training.model import ModelSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.learners.accounted import config_of
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.inputs.model.families.family import CausalLM, CausalLMConfig
from trainer.inputs.model.families.registry import family_of
from trainer.inputs.model.rope import apply_rope
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank

GIB = 1024**3
Figures = dict[str, Any]
Cases = Iterator[tuple[str, Figures]]
"""What a check found, case by case; each is written as soon as it is there."""
Check = Callable[["Setting"], Cases]
TINY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "num_positions": 64,
}
"""The sizes of a toy, whatever its layers are."""


def with_layers(shape: ModelShape, layers: int) -> ModelShape:
    """Return the shape of the first layers of a model."""
    experts, linear = shape.experts, shape.linear
    return replace(
        shape,
        num_layers=layers,
        experts=experts and replace(experts, num_layers=layers),
        # Of every four layers of a hybrid three have linear attention.
        linear=linear and replace(linear, num_layers=layers // 4 * 3),
    )


def _toy(shape: ModelShape) -> ModelShape:
    shape = replace(with_layers(shape, 4 if shape.linear else 2), **TINY)
    if shape.experts is None:
        return shape
    return replace(shape, experts=replace(shape.experts, num=8, per_token=2, width=32))


@dataclass(frozen=True)
class Setting:
    """A device with the shape of a published model, or a CPU with a toy of it."""

    device: str
    rehearses: bool
    model_name: str = "Qwen3-8B"
    vocab_size: int | None = None
    """Another than the model's."""

    @property
    def shape(self) -> ModelShape:
        """Of the whole model."""
        shape = KNOWN[self.model_name]
        if self.rehearses:
            shape = _toy(shape)
        return replace(shape, vocab_size=self.vocab_size or shape.vocab_size)

    def size(self, on_gpu: int, in_rehearsal: int) -> int:
        """Return the one of the two that applies."""
        return in_rehearsal if self.rehearses else on_gpu

    def config(self, layers: int) -> CausalLMConfig:
        """Config of the first layers of the model."""
        config = config_of(with_layers(self.shape, min(layers, self.shape.num_layers)))
        config.max_position_embeddings = self.shape.num_positions or 32_768
        return config

    def model(
        self,
        layers: int,
        *,
        rope: ModelSpec | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | None = None,
    ) -> CausalLM:
        """A random policy, the same one every time."""
        torch.manual_seed(0)
        config = apply_rope(self.config(layers), rope or ModelSpec())
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device or self.device):
                return family_of(config).model_class(config)
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

    def batch(self, tokens: int, *, seed: int = 0, families: int = 1) -> Batch:
        """One mini-batch of families: each a prompt of two fifths of `tokens`, and four branches.

        At 65,536 tokens that is a prompt of 26,000 and rollouts of 4,000 to 16,000.
        """
        drawn = (self._family_of(tokens, seed + index) for index in range(families))
        return Batch(mini_batches=(tuple(each for family in drawn for each in family),))

    def _family_of(self, tokens: int, seed: int) -> tuple[TrainingSequence, ...]:
        shares = (0.1, 0.25, 0.2, 0.05)
        lengths = [max(2, int(share * tokens) - seed) for share in shares]
        return self.family(tokens - sum(lengths), lengths, seed=seed)


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


def gap(found: torch.Tensor | None, true: torch.Tensor | None) -> float:
    """Return the largest difference over the largest true value."""
    assert found is not None
    assert true is not None
    difference = found.detach().float() - true.detach()
    return float(difference.abs().max() / true.detach().abs().max())
