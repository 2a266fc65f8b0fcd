"""One rank of the learner: AdamW on the policy loss over packed families, sharded by FSDP2.

One object per process, and every method is called on all ranks alike with the same arguments:
they communicate inside. A world of one is the same code. Legend: A action tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import Qwen3ForCausalLM

from trainer.algo.loss import policy_loss
from trainer.algo.reduction import token_weights
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.errors import NonFiniteUpdate
from trainer.learners import export, state
from trainer.learners.clipping import clip_gradients
from trainer.learners.models import LearnerOptions, Models, build_models, logprobs
from trainer.learners.packing import MicroBatch, micro_batches, plain
from trainer.learners.rates import RateSchedule
from trainer.learners.sending import Sender
from trainer.learners.sharding import Ranks, World
from trainer.learners.summary import Update, speed_metrics, summary
from trainer.learners.throughput import peak_flops, peak_memory_gib, train_flops
from trainer.timing import SCORING
from trainer.weights.manifest import Manifest, marks

POLICY = "policy"
"""Directory with the weights, in Hugging Face form, inside what `save` writes."""
STATE = "learner"
"""Directory with the weights of record, optimizer, counters and random state."""
ADAPTER = "adapter"
"""Directory with the adapter in peft's form, where one is trained."""


class LearnerRank:
    """Holds a share of policy and optimizer."""

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        options: LearnerOptions | None = None,
        world: World | None = None,
    ) -> None:
        """Take over `model`, the same on every rank: it is cut and trained in place.

        Raises:
            SpecError: the architecture is not supported.
            LearnerError: the ranks did not meet.
        """
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        """How many parameters the policy has; tied weights count once, adapters do not."""
        self.version = 0
        """How many times `step` has run over the life of the run."""
        self._num_updates = 0
        self._options = options or LearnerOptions()
        self._ranks = Ranks(world or World())
        self._models: Models = build_models(model, self._options, self._ranks)
        spec = self._options.optimizer
        self._settings: dict[str, Any] = {
            "lr": spec.lr,
            "betas": spec.betas,
            "eps": spec.eps,
            "weight_decay": spec.weight_decay,
        }
        self._optimizer = torch.optim.AdamW(self._models.trained.values(), **self._settings)
        self._rates = RateSchedule(
            optimizer=spec,
            warmup_updates=self._options.lr_warmup_steps,
            total_steps=self._options.total_steps,
        )
        self._writers = dist.new_group(backend="gloo")
        self.sender = Sender(self._models.parameters, self._options.dtype, self._ranks)
        """Hands the weights to engines without a file."""

    def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `Learner.step`. The metrics are of all ranks.

        A mini-batch without a gradient, all of it masked say, changes nothing but the figures.

        `policy/rollout_train_logprobs_abs_diff_*` are taken over the first mini-batch, before any
        update of this step, and over the tokens in it that these very weights drew: they show how
        far engine and learner disagree, not how far the policy has moved. Without a sequence only
        `policy/policy_lr`, `policy/num_updates` and the seconds spent on scoring by other policies
        are given.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
        """
        started = time.perf_counter()
        packed = [self._pack(sequences) for sequences in batch.mini_batches]
        packed_at = time.perf_counter()
        # All of them before the first update: the proximal policy is the one the step began with.
        scored = [[self._with_other_policies(micro) for micro in part] for part in packed]
        self._ranks.wait()
        scored_at = time.perf_counter()
        num_before = self._num_updates
        updates = [self._update(part) for part in scored]
        # The last optimizer step may still be under way.
        self._ranks.wait()
        updated_at = time.perf_counter()
        num_updates = self._num_updates - num_before
        # Without one the optimizer has the rate that it was made with, or an earlier step's.
        rate = self._optimizer.param_groups[0]["lr"] if num_updates else self._rate()
        metrics = {
            "policy/policy_lr": rate,
            "policy/num_updates": float(num_updates),
            f"timing/{SCORING}": scored_at - packed_at,
        }
        self.version += 1
        if not updates:
            return metrics
        speed = speed_metrics(
            num_tokens=sum(len(each.token_ids) for part in batch.mini_batches for each in part),
            flops=sum(update.flops for update in updates),
            seconds=updated_at - started,
            update_s=updated_at - scored_at,
            num_gpus=self._ranks.size if self._ranks.device.type == "cuda" else 0,
            peak_flops=peak_flops(self._ranks.device),
        )
        peaks = self._ranks.gather(peak_memory_gib(self._ranks.device))
        metrics |= summary(updates, self._options.algorithm)
        return metrics | speed | {"policy/peak_memory_gib": max(peaks)}

    def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        return logprobs(self._models.policy, plain(token_ids, device=self._ranks.device)).cpu()

    def weights(self) -> export.Weights:
        """Whole weights by Hugging Face name on rank 0, in the precision the policy computes in.

        The tied `lm_head.weight` is always there; adapters are worked in. Other ranks get nothing.
        """
        return self._models.whole_weights(self._ranks, self._options.dtype)

    def write_weights(self, path: Path) -> Manifest:
        """Let rank 0 write `weights` as one safetensors file, and return what is in it.

        Other ranks know of no tensor.
        """
        weights = self.weights()
        written = Manifest(self.version, marks(weights.items()))
        if self._ranks.rank == 0:
            export.write_weights(weights, path)
        self._ranks.gather(None)
        return written

    def write_adapter(self, directory: Path) -> Manifest:
        """Let rank 0 write the adapter in peft's form, and return what is in it.

        Raises:
            SpecError: `learner.lora` is not set.
        """
        adapter = self._models.adapter(self._ranks)
        written = Manifest(self.version, marks(adapter.factors.items()))
        if self._ranks.rank == 0:
            adapter.write(directory)
        self._ranks.gather(None)
        return written

    def save(self, directory: Path) -> None:
        """Write `policy/` and `learner/`, with LoRA also `adapter/`; see `Learner.begin_save`."""
        self.begin_save(directory)()

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy all there is to save; the return value writes the rest of it and waits for it.

        Training may go on in between: what it changes is not in the files.
        """
        weights = self.weights()
        writers = [(POLICY, self._models.policy_writer(weights, self._options.tokenizer_dir))]
        if self._options.learner.lora is not None:
            writers.append((ADAPTER, self._models.adapter(self._ranks).write))
        finish_state = state.begin_writing(directory / STATE, self._state(), self._writers)

        def finish() -> None:
            if self._ranks.rank == 0:
                for name, write in writers:
                    write(directory / name)
            finish_state()

        return finish

    def load(self, directory: Path) -> None:
        """Go on from what any number of ranks saved; see `Learner.load`.

        Raises:
            CheckpointError: as `Learner.load`.
        """
        loaded = self._state()
        state.read(directory / STATE, loaded, self._writers)
        self.version, self._num_updates = loaded.version, loaded.num_updates

    def _state(self) -> state.State:
        lora = self._options.learner.lora
        return state.State(
            weights=self._models.trained,
            optimizer=self._optimizer,
            start=self._models.start,
            adapter=None if lora is None else torch.tensor([lora.alpha, lora.rank]),
            version=self.version,
            num_updates=self._num_updates,
            rank=self._ranks.rank,
        )

    def _pack(self, sequences: Sequence[TrainingSequence]) -> list[MicroBatch]:
        return micro_batches(
            sequences,
            token_weights(
                sequences,
                self._options.algorithm,
                max_sequence_length=self._options.max_sequence_length,
            ),
            max_tokens=self._options.learner.max_micro_tokens,
            version=self.version,
            ranks=(self._ranks.rank, self._ranks.size),
            device=self._ranks.device,
        )

    def _with_other_policies(self, micro: MicroBatch) -> MicroBatch:
        """Score the actions by the policies that the loss compares with."""
        actions = replace(
            micro.actions,
            proximal_logprobs_A=self._models.proximal_logprobs(micro),
            reference_logprobs_A=self._models.reference_logprobs(micro),
        )
        return replace(micro, actions=actions)

    def _update(self, packed: Sequence[MicroBatch]) -> Update:
        """Take an optimizer step; without a gradient, on any rank, there is none to take."""
        self._optimizer.zero_grad(set_to_none=True)
        own = sum((self._backward(micro) for micro in packed), Update())
        limit = self._options.optimizer.max_grad_norm or math.inf
        norm = clip_gradients(self._models.trained.values(), limit, self._ranks)
        update = replace(sum(self._ranks.gather(own), Update()), grad_norm=norm)
        # Loss and norm are of all ranks, so all of them refuse alike.
        if not (math.isfinite(norm) and math.isfinite(update.stats.loss)):
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteUpdate(
                f"loss {update.stats.loss}, gradient norm {norm}: update not applied"
            )
        if norm == 0.0:
            # Momentum and weight decay would move the weights though nothing was learned.
            return update
        for group in self._optimizer.param_groups:
            group.update(self._settings, lr=self._rate())
        self._optimizer.step()
        self._num_updates += 1
        return update

    def _backward(self, micro: MicroBatch) -> Update:
        """Add the micro-batch's gradient; ranks that have none left go through the motions."""
        logprobs_A, entropies_A = self._models.policy(micro)
        if micro.is_empty:
            torch.autograd.backward(logprobs_A.sum() * 0.0)
            return Update()
        loss, stats = policy_loss(logprobs_A, micro.actions, self._options.algorithm)
        torch.autograd.backward(loss)
        return Update(
            stats=stats,
            entropy=entropies_A.sum().item(),
            flops=train_flops(
                self._models.config,
                micro,
                num_parameters=self.num_parameters,
                num_adapter_parameters=self._models.num_adapter_parameters,
            ),
        )

    def _rate(self) -> float:
        return self._rates.at(step=self.version, update=self._num_updates)
