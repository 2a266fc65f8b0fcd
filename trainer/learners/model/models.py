"""The policies of a learner: the trained one, with or without adapters, and the reference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal

import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.algo.loss.objective import Objective, objective_of
from trainer.errors import SpecError
from trainer.inputs.model.families.family import CausalLM, CausalLMConfig
from trainer.inputs.model.families.registry import family_of
from trainer.inputs.model.weights import WeightFiles
from trainer.learners.model import export
from trainer.learners.model.kernels.flash4 import fastest_kernel
from trainer.learners.model.kernels.fused import use_fused_kernels
from trainer.learners.model.policy import PolicyModule
from trainer.learners.model.sharding import Ranks, named_parameters, reshard, shard
from trainer.learners.model.start.digest import start_digest
from trainer.learners.model.start.loading import fill
from trainer.learners.packing.packing import MicroBatch
from trainer.learners.recurrent.rule import check_kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerOptions:
    """Settings of the learner's updates: sections of the run spec, and what they need besides."""

    algorithm: AlgorithmSpec = field(default_factory=AlgorithmSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    learner: LearnerSpec = field(default_factory=LearnerSpec)
    lr_warmup_steps: int = 0
    total_steps: int = 1
    """Training steps of the run, for the learning rate."""
    max_sequence_length: int = 1024
    """Of a rollout (tokens): the divisor of `seq_mean_token_sum_norm`."""
    seed: int = 0
    """Seed of the adapters' initial weights."""
    imitates: bool = False
    """Minimise the cross-entropy of the sequences' actions in place of the policy loss."""
    keeps_token_values: bool = False
    """Keep each step's values of its tokens, for `LearnerRank.take_token_values`."""
    tokenizer_dir: Path | None = None
    """Directory of the tokenizer files that `save` copies beside the weights."""

    @property
    def objective(self) -> Objective:
        """The loss with all that it reads."""
        return objective_of(
            self.algorithm, imitates=self.imitates, max_sequence_length=self.max_sequence_length
        )

    @property
    def dtype(self) -> torch.dtype:
        """Precision of forward and backward pass."""
        return torch.bfloat16 if self.learner.policy_dtype == "bfloat16" else torch.float32


@dataclass(frozen=True, slots=True)
class WholeAdapter:
    """A copy of an adapter; ranks other than 0 have none of its tensors."""

    factors: Mapping[str, torch.Tensor]
    """Under peft's names."""
    write: Callable[[Path], None]
    """Writes a directory in peft's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Modules sharded over the ranks; every method is called on all ranks alike."""

    policy: PolicyModule
    options: LearnerOptions
    parameters: Mapping[str, torch.nn.Parameter]
    """All parameters of the policy, by name."""
    reference: PolicyModule | None
    """The policy that training started from; None where none is needed or adapters are trained."""
    adapters: ModuleType | None
    """`trainer.learners.model.adapters` where adapters are trained."""
    start: torch.Tensor | None
    """Digest of the weights that training started from, where some stay frozen in the policy or the
    reference; None where all are trained and there is no reference."""

    @property
    def config(self) -> CausalLMConfig:
        """Config of the policy; its positions are those of `model.rope`."""
        return self.policy.causal_lm.config

    @property
    def trained(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that are trained, by name."""
        return {name: each for name, each in self.parameters.items() if each.requires_grad}

    @property
    def num_adapter_parameters(self) -> int:
        """Number of adapter parameters, on all ranks together; 0 without adapters."""
        return sum(each.numel() for each in self.trained.values()) if self.adapters else 0

    def logprobs_of(self, policy: Literal["current", "start"], micro: MicroBatch) -> torch.Tensor:
        """Score the actions [A] by the policy as it is, or by the one training started from."""
        if policy == "current":
            return logprobs(self.policy, micro)
        # Its own routers choose its experts, whatever the engine chose by the policy's.
        micro = replace(micro, routes_NLK=None)
        if self.reference is not None:
            return logprobs(self.reference, micro)
        assert self.adapters is not None
        with self.adapters.adapters_off(self.policy):
            return logprobs(self.policy, micro)

    def whole_weights(self, ranks: Ranks, dtype: torch.dtype) -> export.Weights:
        """Gather weights by Hugging Face name on rank 0, adapters merged; {} on other ranks."""
        # Adapters are merged in their own precision, and the sum is rounded.
        precision = export.precision_of(self.config, dtype)
        early = precision if self.adapters is None else None
        weights = export.gathered(self.parameters, ranks, early)
        if ranks.rank != 0:
            return {}
        if self.adapters is not None:
            weights = self.adapters.merged(weights, self.options.learner.lora)
        weights = {name: tensor.to(precision(name)) for name, tensor in weights.items()}
        if export.HEAD not in weights:
            weights[export.HEAD] = weights[export.EMBEDDING].clone()
        return weights

    def policy_writer(
        self, weights: export.Weights, tokenizer_dir: Path | None
    ) -> Callable[[Path], None]:
        """Return a function that writes a Hugging Face directory of `whole_weights`."""
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


def build_models(
    model: CausalLM, options: LearnerOptions, ranks: Ranks, files: WeightFiles | None = None
) -> Models:
    """Take over `model`, which holds the weights that training starts from, and shard it.

    With `files` it has no storage, and each rank reads its part of the weights from them.

    Raises:
        SpecError: the architecture is not supported, or not on this machine, or adapters are at
            layers of experts, or its heads cannot be divided.
    """
    if family_of(model.config).has_linear_attention:
        check_kernels(ranks.device)
    use_fused_kernels(model, ranks.device)
    lora, adapters, reference = options.learner.lora, None, None
    has_frozen = lora is not None or options.objective.needs_start
    # Before rounding: another precision of the computation is no other start.
    start = start_digest(model, ranks, files) if has_frozen else None
    if lora is not None:
        # Only runs that train adapters need peft, which takes seconds to import.
        adapters = import_module("trainer.learners.model.adapters")
        # Frozen weights need no better precision than the one they are used in.
        _round_parameters(model, options.dtype)
        adapters.add_adapters(model, lora, seed=options.seed)
    elif options.objective.needs_start:
        reference = _shard(_frozen_copy(model, options.dtype), options, ranks, files)
    policy = _shard(model, options, ranks, files)
    return Models(
        policy=policy,
        options=options,
        parameters=named_parameters(policy),
        reference=reference,
        adapters=adapters,
        start=start,
    )


def _frozen_copy(model: CausalLM, dtype: torch.dtype) -> CausalLM:
    """Copy the model with parameters of `dtype`, which no gradient needs better.

    Never a whole copy in float32 beside the model: where the files cannot be read in parts, every
    rank holds both at this moment.
    """
    precision = export.precision_of(model.config, dtype)
    rounded: dict[int, object] = {
        id(parameter): torch.nn.Parameter(
            parameter.detach().to(precision(name), copy=True), requires_grad=False
        )
        for name, parameter in model.named_parameters()
    }
    return copy.deepcopy(model, rounded)


def _round_parameters(model: CausalLM, dtype: torch.dtype) -> None:
    """Round the parameters to `dtype`, in place, and leave the buffers as they are.

    `Module.to` would round the frequencies of the rotary embedding too: in bfloat16 the positions
    of Qwen3 are off by a radian after 1000 tokens.
    """
    precision = export.precision_of(model.config, dtype)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(precision(name))


def _shard(
    model: CausalLM, options: LearnerOptions, ranks: Ranks, files: WeightFiles | None
) -> PolicyModule:
    whole = PolicyModule(
        model,
        chunk_tokens=options.learner.logprob_chunk_tokens,
        dtype=options.dtype,
        context_group=ranks.context,
    )
    whole.attention_kernel = fastest_kernel(ranks.device, options.dtype, model.config)
    policy = shard(
        whole,
        ranks,
        dtype=options.dtype,
        recompute=options.learner.activation_checkpointing,
        keep=options.learner.keep_activations,
        offload=options.learner.cpu_offload,
    )
    if files is not None:
        device = torch.device("cpu") if options.learner.cpu_offload else ranks.device
        parameters = named_parameters(policy)
        fill(policy, parameters, files, ranks=(ranks.rank, ranks.size), device=device)
    return policy


def logprobs(module: PolicyModule, micro: MicroBatch) -> torch.Tensor:
    """Score a micro-batch's actions, [A], without a gradient."""
    with torch.no_grad():
        logprobs_A: torch.Tensor = module(micro)[0]
    reshard(module)
    return logprobs_A
