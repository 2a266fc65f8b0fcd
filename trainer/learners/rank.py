"""One rank of the learner: AdamW on the policy loss over packed prefix groups, sharded by FSDP2.

One object per process. Every method is called on all ranks alike with the same arguments: they run
collectives, and a rank that is missing blocks the others. A world of one is the same code.

Legend: A action tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from hillclimb.protocol.rundir import ADAPTER, POLICY
from trainer.algo.sequences import Batch, SequenceValues, TrainingSequence
from trainer.attempt.timing import SCORING
from trainer.errors import LearnerError, NonFiniteUpdate
from trainer.inputs.model.families.family import CausalLM
from trainer.inputs.model.weights import WeightFiles
from trainer.learners.model import export
from trainer.learners.model.models import LearnerOptions, Models, build_models, logprobs
from trainer.learners.model.sharding import RankGroup, Ranks
from trainer.learners.packing.packing import MicroBatch, micro_batches, pack_single
from trainer.learners.saved import state
from trainer.learners.saved.sending import Sender
from trainer.learners.update.clipping import clip_gradients
from trainer.learners.update.expert_load import expert_metrics
from trainer.learners.update.optimizer import make_optimizer, settings_of
from trainer.learners.update.parking import park, unpark
from trainer.learners.update.rates import RateSchedule
from trainer.learners.update.summary import Update, speed_metrics, summary
from trainer.learners.update.throughput import pair_cost, peak_flops, peak_memory_gib, train_flops
from trainer.learners.update.token_values import token_values
from trainer.weights.digests import WeightDigests, tensor_digests

STATE = "learner"
"""Directory of a checkpoint with the weights of record, optimizer, counters and random state."""


class LearnerRank:
    """Holds this rank's shard of policy and optimizer."""

    def __init__(
        self,
        model: CausalLM,
        options: LearnerOptions | None = None,
        world: RankGroup | None = None,
        files: WeightFiles | None = None,
    ) -> None:
        """Take over `model`, the same on every rank: it is sharded and trained in place.

        With `files` it has no storage yet, and each rank reads its part of the weights from them.

        Raises:
            SpecError: the architecture is not supported, or ranks or heads cannot be divided by
                `learner.context_parallel_size`.
            LearnerError: the ranks did not all join.
        """
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        """Number of parameters of the policy; tied weights count once, adapters do not."""
        self.version = 0
        """Version of the weights: the number of calls of `step` over the whole run."""
        self._num_updates = 0
        self._token_values: list[SequenceValues] = []
        self._options = options or LearnerOptions()
        context_size = self._options.learner.context_parallel_size
        self._objective = self._options.objective
        self._ranks = Ranks(world or RankGroup(), context_size=context_size)
        self._models: Models = build_models(model, self._options, self._ranks, files)
        spec = self._options.optimizer
        self._settings = settings_of(spec)
        self._optimizer = make_optimizer(
            self._models.trained.values(),
            spec,
            self._ranks.device,
            moments=self._options.learner.optimizer_moments,
            rank=self._ranks.rank,
        )
        self._rates = RateSchedule(
            optimizer=spec,
            warmup_updates=self._options.lr_warmup_steps,
            total_steps=self._options.total_steps,
        )
        precision = export.precision_of(self._models.config, self._options.dtype)
        self.sender = Sender(self._models.parameters, precision, self._ranks)
        """Sends the weights to engines without a file."""

    def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `Learner.step`. The metrics are of all ranks.

        A mini-batch without a gradient (all of it masked, say) changes only the metrics.

        `policy/rollout_train_logprobs_abs_diff_*` are taken over the first mini-batch, before any
        update of this step, and over its tokens sampled by the current weights: they measure the
        mismatch of engine and learner, not the movement of the policy. Without a sequence only
        `policy/policy_lr`, `policy/num_updates` and the seconds spent on scoring by other policies
        are reported.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
            LearnerError: routes are replayed, and a sequence has none, or the batch lacks a stream
                that the loss reads.
        """
        started = time.perf_counter()
        packed = [self._pack(sequences) for sequences in batch.mini_batches]
        packed_at = time.perf_counter()
        # Scored before the first update: the proximal policy is the one that the step began with.
        scored = [[self._with_other_policies(micro) for micro in part] for part in packed]
        self._ranks.wait()
        scored_at = time.perf_counter()
        num_before = self._num_updates
        self._token_values = []
        updates = [self._update(part, self._num_updates - num_before) for part in scored]
        # Kernels run asynchronously: the last optimizer step may still be under way.
        self._ranks.wait()
        updated_at = time.perf_counter()
        num_updates = self._num_updates - num_before
        # Without an update the optimizer still has its initial rate, or that of an earlier step.
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
        metrics |= self._expert_metrics()
        metrics["policy/flops"] = sum(update.flops + update.scoring_flops for update in updates)
        return metrics | speed | {"policy/peak_memory_gib": max(peaks)}

    def park(self) -> None:
        """Leave the GPU to an engine beside this rank, but for the weights: repeating is free.

        The optimizer's state goes to the machine's memory, gradients and cached memory are freed.
        """
        park(self._optimizer)
        self._ranks.free_cached_memory()

    def unpark(self) -> None:
        """Take the optimizer's state back, for the next `step`."""
        unpark(self._optimizer)

    def take_token_values(self) -> tuple[SequenceValues, ...]:
        """Return, and forget, the values of the tokens of this rank's sequences in the last step.

        Empty without `store_token_values`, and for a warm start.
        """
        values, self._token_values = self._token_values, []
        return tuple(values)

    def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        return logprobs(
            self._models.policy, pack_single(token_ids, device=self._ranks.device)
        ).cpu()

    def weights(self) -> export.Weights:
        """Gather weights by Hugging Face name on rank 0, in the precision of the computation.

        The tied `lm_head.weight` is always included; adapters are merged. Other ranks get {}.
        """
        return self._models.whole_weights(self._ranks, self._options.dtype)

    def write_weights(self, path: Path) -> WeightDigests:
        """Write `weights` as one safetensors file on rank 0, and return the digests.

        On other ranks the digests are empty.
        """
        weights = self.weights()
        written = WeightDigests(self.version, tensor_digests(weights.items()))
        if self._ranks.rank == 0:
            export.write_weights(weights, path)
        # A barrier: no rank reports the file before it is whole.
        self._ranks.gather(None)
        return written

    def write_adapter(self, directory: Path) -> WeightDigests:
        """Write the adapter in peft's form on rank 0, and return the digests.

        Raises:
            SpecError: `learner.lora` is not set.
        """
        adapter = self._models.adapter(self._ranks)
        written = WeightDigests(self.version, tensor_digests(adapter.factors.items()))
        if self._ranks.rank == 0:
            adapter.write(directory)
        self._ranks.gather(None)
        return written

    def save(self, directory: Path) -> None:
        """Write `policy/` and `learner/`, with LoRA also `adapter/`; see `Learner.begin_save`."""
        self.begin_save(directory)()

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy the state to save; the returned function writes it and waits for the end.

        Training may go on in between: its updates are not in the files.
        """
        weights = self.weights()
        writers = [(POLICY, self._models.policy_writer(weights, self._options.tokenizer_dir))]
        if self._options.learner.lora is not None:
            writers.append((ADAPTER, self._models.adapter(self._ranks).write))
        finish_state = state.begin_writing(directory / STATE, self._state(), self._ranks.writers)

        def finish() -> None:
            if self._ranks.rank == 0:
                for name, write in writers:
                    write(directory / name)
            finish_state()

        return finish

    def load(self, directory: Path) -> None:
        """Resume from a checkpoint of any number of ranks; see `Learner.load`.

        Raises:
            CheckpointError: as `Learner.load`.
        """
        loaded = self._state()
        state.read(directory / STATE, loaded, self._ranks.writers)
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

    def _expert_metrics(self) -> dict[str, float]:
        routers = self._models.policy.routers
        if routers is None:
            return {}
        loads = routers.take_loads(self._ranks.device)
        replays = self._options.learner.routing_replay
        return expert_metrics(loads, routers.layout, self._ranks, replays=replays)

    def _pack(self, sequences: Sequence[TrainingSequence]) -> list[MicroBatch]:
        replays = self._options.learner.routing_replay and not self._options.imitates
        if replays and any(each.routes is None for each in sequences):
            raise LearnerError(
                "learner.routing_replay is set, and the engine returned no experts of a rollout"
            )
        return micro_batches(
            sequences,
            self._objective.streams_of(sequences, version=self.version),
            max_tokens=self._options.learner.max_micro_tokens * self._ranks.context_size,
            ranks=self._ranks.data_ranks,
            filler_tokens=self._ranks.context_size,
            device=self._ranks.device,
            pair_cost=pair_cost(self._models.config, num_parameters=self.num_parameters),
        )

    def _with_other_policies(self, micro: MicroBatch) -> MicroBatch:
        """Add the log-probs [A] of other policies that the loss reads."""
        columns = {
            each.stream: self._models.logprobs_of(each.policy, micro)
            for each in self._objective.scorings
        }
        return replace(micro, actions=micro.actions.with_columns(columns)) if columns else micro

    def _update(self, packed: Sequence[MicroBatch], num_earlier: int) -> Update:
        """Take an optimizer step, unless the gradient is zero on all ranks.

        `num_earlier` counts those that this step has taken before.
        """
        self._optimizer.zero_grad(set_to_none=True)
        own = sum((self._backward(micro, num_earlier) for micro in packed), Update())
        limit = self._options.optimizer.max_grad_norm or math.inf
        # FSDP has summed the gradients over the ranks already; the norm is that of all shards.
        norm = clip_gradients(self._models.trained.values(), limit, self._ranks)
        update = replace(sum(self._ranks.gather(own), Update()), grad_norm=norm)
        # Loss and norm are the same on every rank: all of them raise, and none waits for another.
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

    def _backward(self, micro: MicroBatch, num_earlier: int = 0) -> Update:
        """Accumulate the micro-batch's gradient; an empty one only joins the collectives."""
        logprobs_A, entropies_A = self._models.policy(micro)
        if micro.is_empty:
            # A gradient of zero: FSDP's reduce-scatter needs a backward pass on every rank.
            torch.autograd.backward(logprobs_A.sum() * 0.0)
            return Update()
        loss, stats = self._objective.loss(logprobs_A, micro.actions)
        torch.autograd.backward(loss)
        if not self._ranks.reports:
            # Its context group has computed the same loss, and counts it once.
            return Update()
        if self._options.keeps_token_values:
            self._token_values += token_values(
                micro, logprobs_A, entropies_A, num_updates=num_earlier
            )
        return Update(
            stats=stats,
            entropy=entropies_A.sum().item(),
            flops=train_flops(
                self._models.config,
                micro,
                num_parameters=self.num_parameters,
                num_adapter_parameters=self._models.num_adapter_parameters,
            ),
            scoring_flops=len(self._objective.scorings) * self._forward_flops(micro),
        )

    def _forward_flops(self, micro: MicroBatch) -> float:
        """Count those of scoring a micro-batch: a third of training on it, without adapters."""
        flops = train_flops(self._models.config, micro, num_parameters=self.num_parameters)
        return flops / 3.0

    def _rate(self) -> float:
        return self._rates.at(step=self.version, update=self._num_updates)
