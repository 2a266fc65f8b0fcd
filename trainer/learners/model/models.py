"""The policies of a learner: the trained one, with or without adapters, and those it is held to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.algo.loss import needs_proximal, needs_reference
from trainer.contract.algorithm import AlgorithmSpec
from trainer.contract.sections import LearnerSpec, OptimizerSpec
from trainer.errors import SpecError
from trainer.learners import export
from trainer.learners.packing import MicroBatch
from trainer.learners.policy import PolicyModule
from trainer.learners.sharding import Ranks, named_parameters, reshard, shard
from trainer.learners.start import start_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerOptions:
    """How the learner updates; the sections mean what the run spec says."""

    algorithm: AlgorithmSpec = field(default_factory=AlgorithmSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    learner: LearnerSpec = field(default_factory=LearnerSpec)
    lr_warmup_steps: int = 0
    total_steps: int = 1
    """Training steps of the run, for the learning rate."""
    max_sequence_length: int = 1024
    """Of a rollout (tokens): the divisor of `seq_mean_token_sum_norm`."""
    seed: int = 0
    """Draws the adapters."""
    tokenizer_dir: Path | None = None
    """Where the tokenizer files are that `save` puts beside the weights."""

    @property
    def dtype(self) -> torch.dtype:
        """Precision of forward and backward pass."""
        return torch.bfloat16 if self.learner.policy_dtype == "bfloat16" else torch.float32


@dataclass(frozen=True, slots=True)
class WholeAdapter:
    """A copy of an adapter; ranks other than 0 have none of its tensors."""

    factors: Mapping[str, torch.Tensor]
    """By the names that peft gives them."""
    write: Callable[[Path], None]
    """Writes a directory in peft's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Modules that are cut over the ranks; every method is called on all ranks alike."""

    policy: PolicyModule
    options: LearnerOptions
    parameters: Mapping[str, torch.nn.Parameter]
    """All of the policy's, by name."""
    reference: PolicyModule | None
    """The policy that training started from; None where none is needed or adapters are trained."""
    adapters: ModuleType | None
    """`trainer.learners.adapters` where adapters are trained."""
    start: torch.Tensor | None
    """Digest of the weights that training started from, where the policy or the reference is partly
    they for good; None where all of them are trained and compared with nothing."""

    @property
    def config(self) -> Qwen3Config:
        """Of the policy; its positions are those of `model.rope`."""
        return self.policy.causal_lm.config

    @property
    def trained(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that are trained, by name."""
        return {name: each for name, each in self.parameters.items() if each.requires_grad}

    @property
    def num_adapter_parameters(self) -> int:
        """How many parameters the adapters have, on all ranks together; 0 without."""
        return sum(each.numel() for each in self.trained.values()) if self.adapters else 0

    def proximal_logprobs(self, micro: MicroBatch) -> torch.Tensor | None:
        """The policy's own log-probs [A] where an off-policy correction asks for them."""
        if not needs_proximal(self.options.algorithm):
            return None
        return logprobs(self.policy, micro)

    def reference_logprobs(self, micro: MicroBatch) -> torch.Tensor | None:
        """Log-probs [A] of the policy that training started from where the loss has a KL term."""
        if not needs_reference(self.options.algorithm):
            return None
        if self.reference is not None:
            return logprobs(self.reference, micro)
        assert self.adapters is not None
        with self.adapters.adapters_off(self.policy):
            return logprobs(self.policy, micro)

    def whole_weights(self, ranks: Ranks, dtype: torch.dtype) -> export.Weights:
        """Weights by Hugging Face name on rank 0, adapters worked in; nothing on other ranks."""
        weights = export.gathered(self.parameters, ranks)
        if ranks.rank != 0:
            return {}
        if self.adapters is not None:
            weights = self.adapters.merged(weights, self.options.learner.lora)
        weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
        if export.HEAD not in weights:
            weights[export.HEAD] = weights[export.EMBEDDING].clone()
        return weights

    def policy_writer(
        self, weights: export.Weights, tokenizer_dir: Path | None
    ) -> Callable[[Path], None]:
        """Return what writes a Hugging Face directory of `whole_weights`."""
        return export.policy_writer(self.policy.causal_lm, weights, tokenizer_dir)

    def adapter(self, ranks: Ranks) -> WholeAdapter:
        """Return the adapter as it is now.

        Raises:
            SpecError: none is trained.
        """
        lora, adapters = self.options.learner.lora, self.adapters
        if lora is None or adapters is None:
            raise SpecError("learner.lora is not set: there is no adapter")
        factors = adapters.factors(export.gathered(self.trained, ranks))
        return WholeAdapter(factors, partial(adapters.save_adapter, factors, lora))


def build_models(model: Qwen3ForCausalLM, options: LearnerOptions, ranks: Ranks) -> Models:
    """Take over `model`, which holds the weights that training starts from, and cut it.

    Raises:
        SpecError: the architecture is not supported.
    """
    lora, adapters, reference = options.learner.lora, None, None
    is_held = lora is not None or needs_reference(options.algorithm)
    # Before they are rounded: another precision makes no other start.
    start = start_digest(model, ranks) if is_held else None
    if lora is not None:
        # Only runs that train adapters need peft, which takes seconds to import.
        adapters = import_module("trainer.learners.adapters")
        # Frozen weights need no better precision than the one they are used in.
        _round_parameters(model, options.dtype)
        adapters.add_adapters(model, lora, seed=options.seed)
    elif needs_reference(options.algorithm):
        frozen = copy.deepcopy(model).requires_grad_(requires_grad=False)
        _round_parameters(frozen, options.dtype)
        reference = _cut(frozen, options, ranks)
    policy = _cut(model, options, ranks)
    return Models(
        policy=policy,
        options=options,
        parameters=named_parameters(policy),
        reference=reference,
        adapters=adapters,
        start=start,
    )


def _round_parameters(model: Qwen3ForCausalLM, dtype: torch.dtype) -> None:
    """Turn the parameters into `dtype`, in place, and leave the buffers as they are.

    `Module.to` would round the frequencies of the rotary embedding too: in bfloat16 the positions
    of Qwen3 are off by a radian after 1000 tokens.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def _cut(model: Qwen3ForCausalLM, options: LearnerOptions, ranks: Ranks) -> PolicyModule:
    return shard(
        PolicyModule(model, chunk_tokens=options.learner.logprob_chunk_tokens),
        ranks,
        dtype=options.dtype,
        recompute=options.learner.activation_checkpointing,
        offload=options.learner.cpu_offload,
    )


def logprobs(module: PolicyModule, micro: MicroBatch) -> torch.Tensor:
    """Log-probs [A] of a micro-batch's actions, without a gradient."""
    with torch.no_grad():
        logprobs_A: torch.Tensor = module(micro)[0]
    reshard(module)
    return logprobs_A
