"""The learner on a Tinker server: gradients and weights there, all decisions here."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tinker
import torch
from tinker import types
from tinker.lib.public_interfaces.api_future import APIFuture

from hillclimb.blobs.base import StoreError
from hillclimb.protocol.rundir import ADAPTER
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.algo.sequences import Batch, SequenceValues, TrainingSequence
from trainer.attempt.timing import SCORING
from trainer.errors import CheckpointError, LearnerError, NonFiniteUpdate, SpecError, TrainerError
from trainer.learners.update.rates import RateSchedule
from trainer.workers.tinker import saved
from trainer.workers.tinker.calls import awaited, status_of
from trainer.workers.tinker.datum import DatumOptions, data_of, loss_of, scored
from trainer.workers.tinker.figures import ServedUpdate, figures_of, metrics_of, values_of
from trainer.workers.tinker.service import TinkerService

EXPORT_TTL_S = 3600
"""Life of the copy on the server that an adapter is downloaded from (seconds)."""
_NOT_FOUND = frozenset({404, 410})
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerOptions:
    """Settings of the learner's updates: sections of the run spec, and what they need besides."""

    algorithm: AlgorithmSpec
    optimizer: OptimizerSpec
    lr_warmup_steps: int
    total_steps: int
    max_sequence_length: int
    vocab_size: int
    num_parameters: int
    """Of the base model; 0 where that is not known here."""
    keeps_token_values: bool = False
    """Keep each step's values of its tokens, for `TinkerLearner.take_token_values`."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A mini-batch in flight, with its update."""

    sequences: Sequence[TrainingSequence]
    forward: APIFuture[types.ForwardBackwardOutput]
    optim: APIFuture[types.OptimStepResponse]
    rate: float


class TinkerLearner:
    """A `Learner` whose weights stay on the server; a checkpoint gets a copy of the adapter."""

    def __init__(self, service: TinkerService, options: TinkerOptions) -> None:
        """Make a new adapter on the server.

        Raises:
            SpecError: the server has no such model or rank.
            LearnerError: it does not answer.
        """
        self.version = 0
        """Version of the weights: the number of calls of `step` over the whole run."""
        self.num_updates = 0
        """Optimizer steps so far: while it is unchanged, so are the weights."""
        self.num_parameters = options.num_parameters
        self._service = service
        self._options = options
        self._rates = RateSchedule(
            optimizer=options.optimizer,
            warmup_updates=options.lr_warmup_steps,
            total_steps=options.total_steps,
        )
        self._data = DatumOptions(
            algorithm=options.algorithm,
            max_sequence_length=options.max_sequence_length,
            vocab_size=options.vocab_size,
            is_averaged=service.request.tinker.losses == "averaged",
        )
        self._training = service.make_training()
        self._numbers = itertools.count(1)
        self._token_values: list[SequenceValues] = []
        self._states: list[str] = []
        """Paths of the server's states for checkpoints of this run, the oldest first."""

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `Learner.step`.

        All mini-batches are sent before the first answer is waited for, each with its update, so
        that the server need not wait for us. Mini-batches without a signal are not in the batch:
        an optimizer step without a gradient would let Adam drift.

        Raises:
            NonFiniteUpdate: a log-prob is NaN or infinite. The server has applied the update; the
                last checkpoint is from before it.
            LearnerError: the server did not do it.
        """
        started = time.perf_counter()
        self._token_values = []
        sent = await asyncio.to_thread(self._send, batch)
        updates = [await self._received(each, number) for number, each in enumerate(sent)]
        metrics = {
            "policy/policy_lr": sent[-1].rate if sent else self._rate(),
            "policy/num_updates": float(len(sent)),
            f"timing/{SCORING}": 0.0,
        }
        self.version += 1
        if not updates:
            return metrics
        seconds = time.perf_counter() - started
        return metrics | metrics_of(updates, batch, self._options.algorithm, seconds=seconds)

    async def take_token_values(self) -> tuple[SequenceValues, ...]:
        """See `Learner.take_token_values`; the server computes no entropies."""
        values, self._token_values = self._token_values, []
        return tuple(values)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        answer = await self._awaited(
            "log-probs of a sequence", self._training.forward([scored(token_ids)], "cross_entropy")
        )
        return torch.tensor(_scores(answer)[0], dtype=torch.float32)

    async def sampling_client(self) -> tinker.SamplingClient:
        """Publish the current weights and return a client that samples from them."""
        # The SDK's async variant blocks the event loop, so the blocking one runs in a thread.
        return await self._service.aside(
            "the weights for sampling", self._training.save_weights_and_get_sampling_client
        )

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Make the server save the current weights and optimizer.

        The returned function waits for it, copies the adapter into `directory` and records the path
        of the state. Every name is used once: the server would not answer a second time.
        """
        name = saved.state_name(self._service.request.name, self.version, next(self._numbers))
        state = self._training.save_state(name)
        export = self._training.save_weights_for_sampler(
            f"{name}-adapter", ttl_seconds=EXPORT_TTL_S
        )
        version, num_updates = self.version, self.num_updates

        def finish() -> None:
            path = self._checkpoint_call(
                "a checkpoint", lambda: state.result(self._service.timeout_s)
            ).path
            try:
                exported = self._checkpoint_call(
                    "the adapter", lambda: export.result(self._service.timeout_s)
                )
                self._copy_adapter(exported.path, directory / ADAPTER)
            except StoreError:
                # No checkpoint will name the state.
                self._forget(path)
                raise
            self._states.append(path)
            record = saved.SavedState(
                state_path=path,
                base_model=self._service.request.base_model,
                lora_rank=self._service.request.tinker.lora_rank,
                version=version,
                num_updates=num_updates,
                stored_paths=tuple(self._states),
            )
            saved.write_state(directory, record)

        return finish

    def load(self, directory: Path) -> None:
        """Resume from a checkpoint of `begin_save`, if its state still exists; see `Learner.load`.

        Raises:
            CheckpointError: the server no longer has it, or it is of another model or backend.
            LearnerError: the server does not answer.
        """
        state, request = saved.read_state(directory), self._service.request
        if (state.base_model, state.lora_rank) != (request.base_model, request.tinker.lora_rank):
            raise CheckpointError(
                f"the checkpoint is of {state.base_model} with rank {state.lora_rank}, and the run"
                f" of {request.base_model} with rank {request.tinker.lora_rank}"
            )
        loading = self._training.load_state_with_optimizer(state.state_path)
        try:
            self._service.blocking(
                f"the state {state.state_path}", lambda: loading.result(self._service.timeout_s)
            )
        except TrainerError as refused:
            lost = refused.__cause__ is not None and status_of(refused.__cause__) in _NOT_FOUND
            if not (lost or isinstance(refused, SpecError)):
                raise
            raise CheckpointError(
                f"{refused}: the server no longer has what the checkpoint names; its adapter is in"
                f" the checkpoint's {ADAPTER}/"
            ) from refused
        self.version, self.num_updates = state.version, state.num_updates
        if saved.is_of_run(state.state_path, request.run_id):
            self._states = list(state.stored_paths)

    def keep_only(self, checkpoints: Collection[str]) -> None:
        """Delete the run's states on the server whose checkpoints are none of these (by path)."""
        current = [each for each in self._states if saved.checkpoint_of(each) in checkpoints]
        outdated = [each for each in self._states if each not in current]
        self._states = current
        for each in outdated:
            self._forget(each)

    def _send(self, batch: Batch) -> list[_Sent]:
        return [self._send_one(each) for each in batch.mini_batches]

    def _send_one(self, sequences: Sequence[TrainingSequence]) -> _Sent:
        options, rate = self._options, self._rate()
        data = data_of(sequences, self._data)
        loss = loss_of(options.algorithm)
        forward = self._training.forward_backward(data, loss.name, loss.config)
        beta1, beta2 = options.optimizer.betas
        optim = self._training.optim_step(
            types.AdamParams(
                learning_rate=rate,
                beta1=beta1,
                beta2=beta2,
                eps=options.optimizer.eps,
                weight_decay=options.optimizer.weight_decay,
            )
        )
        self.num_updates += 1
        return _Sent(sequences, forward, optim, rate)

    async def _received(self, sent: _Sent, num_earlier: int) -> ServedUpdate:
        """Return the figures of a mini-batch that the step sent after `num_earlier` others."""
        output = await self._awaited("a gradient", sent.forward)
        optim = await self._awaited("an optimizer step", sent.optim)
        scores = _scores(output)
        update = figures_of(
            sent.sequences,
            scores,
            self._options.algorithm,
            max_sequence_length=self._options.max_sequence_length,
            version=self.version,
            optim_metrics=optim.metrics or {},
        )
        if not update.is_finite:
            raise NonFiniteUpdate(
                f"loss {update.stats.loss}, gradient norm {update.grad_norm}: the Tinker server has"
                " applied the update, so the run goes on from its last checkpoint"
            )
        if self._options.keeps_token_values:
            self._token_values += values_of(sent.sequences, scores, num_updates=num_earlier)
        return update

    def _rate(self) -> float:
        return self._rates.at(step=self.version, update=self.num_updates)

    async def _awaited(self, what: str, answer: APIFuture[T]) -> T:
        return await awaited(what, LearnerError, self._service.timeout_s, answer)

    def _checkpoint_call(self, what: str, call: Callable[[], T]) -> T:
        """Make a call for a checkpoint; a failure costs this checkpoint, and the next one retries.

        Raises:
            StoreError: the call failed.
        """
        try:
            return self._service.blocking(what, call)
        except TrainerError as error:
            raise StoreError(str(error)) from error

    def _copy_adapter(self, path: str, directory: Path) -> None:
        run_id, checkpoint = saved.place_of(path)
        timeout_s, rest = self._service.timeout_s, self._service.client.create_rest_client()
        try:
            link = self._checkpoint_call(
                "the adapter's address",
                lambda: rest.get_checkpoint_archive_url(run_id, checkpoint).result(timeout_s),
            )
            saved.download_adapter(
                link.url, directory, timeout_s=timeout_s, allowed=self._service.allowed
            )
        finally:
            self._forget(path)

    def _forget(self, path: str) -> None:
        """Delete the server's state under a path, if it can."""
        run_id, checkpoint = saved.place_of(path)
        timeout_s, rest = self._service.timeout_s, self._service.client.create_rest_client()
        try:
            self._checkpoint_call(
                f"the deletion of {checkpoint}",
                lambda: rest.delete_checkpoint(run_id, checkpoint).result(timeout_s),
            )
        except StoreError as error:
            # Not every server supports it.
            _log.info("%s", error)


def _scores(output: types.ForwardBackwardOutput) -> list[list[float]]:
    """Return the log-probs of each datum's targets.

    Raises:
        LearnerError: the server returned none.
    """
    try:
        return [
            [float(score) for score in each["logprobs"].data] for each in output.loss_fn_outputs
        ]
    except KeyError as missing:
        raise LearnerError(f"the Tinker server's answer has no {missing}") from missing
