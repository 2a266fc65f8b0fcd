"""The learner of one process: AdamW on the clipped surrogate over packed families."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from trainer.algo.batch import Batch, TrainingSequence
from trainer.algo.loss import LossStats, policy_loss, token_weights
from trainer.contract.sections import AlgorithmSpec, OptimizerSpec
from trainer.errors import CheckpointError, ModelUnavailable, NonFiniteUpdate, SpecError
from trainer.learners.attention import NAME as FAMILY_ATTENTION
from trainer.learners.base import Published
from trainer.learners.packing import MicroBatch, micro_batches
from trainer.models import check_supported, copy_tokenizer, load_policy

POLICY = "policy"
"""Directory with the weights, in Hugging Face form, inside what `save` writes."""
STATE = "learner.pt"
"""File with optimizer, counters and random state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLearnerOptions:
    """How the learner updates; algorithm and optimizer mean what the run spec says."""

    algorithm: AlgorithmSpec = field(default_factory=AlgorithmSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    lr_warmup_steps: int = 0
    max_micro_tokens: int = 4096
    """Packed tokens of one forward and backward pass; bounds memory, changes no result."""
    tokenizer_dir: Path | None = None
    """Where the tokenizer files are that `save` puts beside the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """What one optimizer step reports."""

    stats: LossStats
    entropy_sum: float
    grad_norm: float


class TorchLearner:
    """A `Learner` on transformers' own Qwen3, in float32 on the model's device."""

    def __init__(self, model: Qwen3ForCausalLM, options: TorchLearnerOptions | None = None) -> None:
        """Take over `model`: its weights are trained in place.

        Raises:
            SpecError: the architecture is not supported.
        """
        check_supported(model.config)
        model.set_attn_implementation(FAMILY_ATTENTION)
        self._model = model
        self._options = options or TorchLearnerOptions()
        optimizer = self._options.optimizer
        self._settings: dict[str, Any] = {
            "lr": optimizer.lr,
            "betas": optimizer.betas,
            "eps": optimizer.eps,
            "weight_decay": optimizer.weight_decay,
        }
        self._optimizer = torch.optim.AdamW(model.parameters(), **self._settings)
        self._version = 0
        self._num_updates = 0

    @property
    def version(self) -> int:
        """How many times `step` has run over the life of the run."""
        return self._version

    @property
    def num_parameters(self) -> int:
        """How many parameters the policy has; tied weights count once."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `Learner.step`.

        `policy/rollout_train_logprobs_abs_diff_*` are taken over the first mini-batch, before any
        update of this step: they show how far engine and learner disagree, not how far the policy
        has moved. Without a sequence only `policy/policy_lr` and `policy/num_updates` are given.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
        """
        return await asyncio.to_thread(self._step, batch)

    def publish(self) -> Published:
        """Return the current weights, the tied head under its own name too."""
        weights = {name: tensor.detach() for name, tensor in self._model.state_dict().items()}
        weights["lm_head.weight"] = self._model.lm_head.weight.detach()
        return Published(weights=weights, version=self._version)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        with torch.no_grad():
            ids = torch.tensor(token_ids, device=self._model.device)
            logits: torch.Tensor = self._model(input_ids=ids[None, :-1], use_cache=False).logits[0]
            return logits.log_softmax(-1).gather(1, ids[1:].unsqueeze(1)).squeeze(1).cpu()

    def save(self, directory: Path) -> None:
        """Write `policy/` and `learner.pt`; see `Learner.save`."""
        policy = directory / POLICY
        policy.mkdir(parents=True, exist_ok=True)
        self._model.save_pretrained(policy)
        if self._options.tokenizer_dir is not None:
            copy_tokenizer(self._options.tokenizer_dir, policy)
        state = {
            "optimizer": self._optimizer.state_dict(),
            "version": self._version,
            "num_updates": self._num_updates,
            "torch_rng": torch.get_rng_state(),
        }
        torch.save(state, directory / STATE)

    def load(self, directory: Path) -> None:
        """Go on from what `save` wrote; see `Learner.load`.

        Raises:
            CheckpointError: a file is missing, unreadable, or of another architecture.
        """
        try:
            saved = load_policy(directory / POLICY)
            state = torch.load(directory / STATE, weights_only=True, map_location="cpu")
            self._model.load_state_dict(saved.state_dict())
            self._optimizer.load_state_dict(state["optimizer"])
        except (OSError, ModelUnavailable, SpecError, RuntimeError, ValueError, KeyError, EOFError,
                pickle.UnpicklingError) as fault:  # fmt: skip
            raise CheckpointError(f"cannot load {directory}: {fault}") from fault
        for group in self._optimizer.param_groups:
            # The state brings the settings it was saved under; those of the spec are the truth.
            group.update(self._settings)
        self._version = state["version"]
        self._num_updates = state["num_updates"]
        torch.set_rng_state(state["torch_rng"])

    def _step(self, batch: Batch) -> dict[str, float]:
        updates = [self._update(mini_batch) for mini_batch in batch.mini_batches]
        self._version += 1
        metrics = {
            "policy/policy_lr": self._optimizer.param_groups[0]["lr"],
            "policy/num_updates": float(len(updates)),
        }
        return metrics | (_summary(updates) if updates else {})

    def _update(self, sequences: Sequence[TrainingSequence]) -> _Update:
        options = self._options
        self._optimizer.zero_grad(set_to_none=True)
        weights = token_weights(sequences, options.algorithm)
        stats, entropy_sum = LossStats(), 0.0
        packed = micro_batches(
            sequences, weights, max_tokens=options.max_micro_tokens, device=self._model.device
        )
        for micro in packed:
            logprobs_A, entropy = self._action_logprobs(micro)
            loss, part = policy_loss(logprobs_A, micro.actions, options.algorithm)
            torch.autograd.backward(loss)
            stats, entropy_sum = stats + part, entropy_sum + entropy
        norm = torch.nn.utils.clip_grad_norm_(
            self._model.parameters(), options.optimizer.max_grad_norm
        ).item()
        if not (math.isfinite(norm) and math.isfinite(stats.loss)):
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteUpdate(f"loss {stats.loss}, gradient norm {norm}: update not applied")
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self._optimizer.step()
        self._num_updates += 1
        return _Update(stats=stats, entropy_sum=entropy_sum, grad_norm=norm)

    def _action_logprobs(self, micro: MicroBatch) -> tuple[torch.Tensor, float]:
        """Log-probs [A] of the sampled tokens at their temperature, and the summed entropy."""
        hidden_1ND = self._model.model(
            input_ids=micro.token_ids_N.unsqueeze(0),
            position_ids=micro.positions_N.unsqueeze(0),
            use_cache=False,
            families=micro.families,
        ).last_hidden_state
        logits_AV = self._model.lm_head(hidden_1ND[0].index_select(0, micro.sources_A))
        logprobs_AV = (logits_AV / micro.temperatures_A.unsqueeze(1)).log_softmax(-1)
        with torch.no_grad():
            entropy = -(logprobs_AV.exp() * logprobs_AV).sum().item()
        return logprobs_AV.gather(1, micro.targets_A.unsqueeze(1)).squeeze(1), entropy

    def _learning_rate(self) -> float:
        """Linear warm-up over optimizer steps, then constant."""
        peak, warmup = self._options.optimizer.lr, self._options.lr_warmup_steps
        return peak * min(1.0, (self._num_updates + 1) / warmup) if warmup else peak


def _summary(updates: Sequence[_Update]) -> dict[str, float]:
    total = sum((update.stats for update in updates), LossStats())
    first, num = updates[0].stats, len(updates)
    return {
        "policy/final_loss": total.loss / num,
        "policy/ppo_clip_ratio": total.clip_ratio,
        "policy/policy_entropy": sum(update.entropy_sum for update in updates) / total.num_tokens,
        "policy/grad_norm": sum(update.grad_norm for update in updates) / num,
        "policy/effective_sample_share": total.effective_sample_share,
        "policy/num_action_tokens": float(total.num_tokens),
        "policy/rollout_train_logprobs_abs_diff_mean": first.mean_abs_logprob_diff,
        "policy/rollout_train_logprobs_abs_diff_max": first.max_abs_logprob_diff,
    }
