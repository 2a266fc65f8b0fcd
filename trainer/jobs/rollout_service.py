"""Runs rollout requests and stores the results: trajectory files, outcome rows, warnings.

With the trajectories go the rollouts' times, the learner's values of the tokens that it learned
from, and once per attempt the texts of all tokens.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

from hillclimb.blobs.base import StoreError, StoreFull
from hillclimb.environment.task import Task
from hillclimb.protocol.events import EnvDegraded, PhaseStarted, RunWarning
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.protocol.rundir import (
    TRAJECTORIES,
    times_file,
    token_values_file,
    trajectory_file,
    vocabulary_file,
)
from trainer.algo.sequences import Batch, SequenceValues
from trainer.attempt.context import AttemptContext
from trainer.attempt.storage import raise_storage_full
from trainer.errors import TrainerError
from trainer.rollouts.chat.tokenizer import load_tokenizer
from trainer.rollouts.episode import SAMPLING_LATE
from trainer.rollouts.groups.buffer import RolloutBatch, RolloutBuffer
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.groups.outage import commonest_detail, refuse_outage
from trainer.rollouts.groups.resampling import RolloutGroup
from trainer.rollouts.groups.until_enough import StopRule
from trainer.rollouts.records.dump import trajectories_name, write_trajectories
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.records.times import write_times
from trainer.rollouts.records.token_values import write_token_values
from trainer.rollouts.records.vocabulary import write_vocabulary
from trainer.rollouts.request import Rollout, RolloutRequest

DEGRADED_RATE = 0.1
"""Share of an environment's rollouts with infra errors from which `env.degraded` is emitted."""
NO_SCORE = "no_score"
"""Code, among those of infra errors, for a verifier that answers without a score."""
RESEND_S = 20.0
"""Time limit for uploading missed files, once the store accepts one again (seconds)."""
CLOSE_S = 10.0
"""Time limit for uploading missed files at the end of the attempt (seconds)."""
_Upload: TypeAlias = tuple[str, Path]
"""A key relative to the run, and the local file."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutResults:
    """Rollout groups, and one outcome row per rollout in the same order."""

    groups: tuple[RolloutGroup, ...]
    rows: tuple[OutcomeRow, ...]

    @property
    def rollouts(self) -> Iterator[Rollout]:
        """All rollouts, in the order of `rows`."""
        return chain.from_iterable(self.groups)

    @property
    def outcomes_by_group(self) -> tuple[tuple[OutcomeRow, ...], ...]:
        """The rows by group; a step may have several groups of one task."""
        rows = iter(self.rows)
        return tuple(tuple(islice(rows, len(group))) for group in self.groups)


@dataclass(slots=True, kw_only=True)
class RolloutService:
    """Runs rollouts, stores their trajectories, and reports degraded environments."""

    context: AttemptContext
    collector: Collector
    max_infra_error_rate: float
    model_dir: Path
    """Directory of the model, whose tokens' texts are stored."""
    _warned: set[str] = field(default_factory=set)
    """Codes of the warnings that were emitted: each is once per attempt."""
    _has_vocabulary: bool = False
    _unsent: list[_Upload] = field(default_factory=list)
    """Files that could not be uploaded, oldest first."""
    _storing: asyncio.Task[None] | None = None
    """Stores the trajectories of the last request."""

    async def run(self, tasks: Sequence[Task], request: RolloutRequest) -> RolloutResults:
        """Run all rollouts of `tasks`.

        Raises:
            StopRequested, AttemptSuperseded: stopped on request; rollouts in flight are cancelled.
            EnvironmentOutage, SpecError: too many rollouts have no grade; see `refuse_outage`.
            StorageFull: the trajectories cannot be written.
        """
        self.announce(request, num_groups=len(tasks))
        groups = await self.context.stop.race(self.collector.collect(tasks, request))
        return await self.record(groups, request)

    async def run_until(
        self, tasks: Sequence[Task], request: RolloutRequest, rule: StopRule
    ) -> tuple[RolloutResults, int]:
        """Run the rollouts of the first tasks, as many as the rule says are enough.

        The number counts the begun rollouts of later tasks, which are not among the results.

        Raises:
            StopRequested, AttemptSuperseded, EnvironmentOutage, SpecError, StorageFull: as `run`.
        """
        self.announce(request, num_groups=len(tasks))
        first = await self.context.stop.race(self.collector.collect_until(tasks, request, rule))
        return await self.record(first.groups, request), first.num_discarded

    async def next_batch(
        self, buffer: RolloutBuffer, request: RolloutRequest
    ) -> tuple[RolloutBatch, RolloutResults]:
        """Return the batch of a training step, and the results of all rollouts made for it.

        The trajectories are stored in the background, while the step learns; `settle` waits.

        Raises:
            StopRequested, AttemptSuperseded, EnvironmentOutage, SpecError, StorageFull: as
                `run`.
        """
        self.announce(request, num_groups=buffer.batch_size)
        batch = await self.context.stop.race(buffer.next_batch(request.step))
        groups = (*batch.groups, *batch.dropped)
        return batch, await self.record(groups, request, in_background=True)

    async def settle(self) -> None:
        """Wait until the trajectories of the last `next_batch` are stored.

        Raises:
            StorageFull: they cannot be written.
        """
        storing, self._storing = self._storing, None
        if storing is not None:
            await storing

    def announce(self, request: RolloutRequest, *, num_groups: int) -> None:
        """Emit `phase.started` for the rollouts of a request."""
        self.context.journal.emit(
            PhaseStarted(
                step=request.step,
                phase="eval" if request.split == "eval" else "rollout",
                decoding=request.decoding if request.split == "eval" else None,
                num_rollouts=num_groups * request.n_samples_per_prompt,
            )
        )

    async def record(
        self,
        groups: Sequence[RolloutGroup],
        request: RolloutRequest,
        *,
        in_background: bool = False,
    ) -> RolloutResults:
        """Store the trajectories of a request and report infra errors.

        Raises:
            EnvironmentOutage, SpecError, StorageFull: as `run`.
        """
        flat = [rollout for group in groups for rollout in group]
        name = trajectories_name(request)
        self._storing = asyncio.create_task(self._keep(name, flat, request))
        if not in_background:
            await self.settle()
        rows = await asyncio.to_thread(
            outcome_rows,
            flat,
            request,
            trajectory_key=f"{TRAJECTORIES}/{name}.jsonl.gz",
            pass_threshold=self.context.spec.eval.pass_threshold,
        )
        self._report_degraded(flat, request)
        try:
            refuse_outage(flat, max_infra_error_rate=self.max_infra_error_rate)
        except TrainerError:
            await self.settle()
            raise
        return RolloutResults(groups=tuple(groups), rows=rows)

    async def _keep(self, name: str, rollouts: Sequence[Rollout], request: RolloutRequest) -> None:
        with raise_storage_full(self.context.dir.path):
            problem = await asyncio.to_thread(self._store, name, rollouts, request)
        self._warn_of_upload(request.step, problem)

    async def store_token_values(
        self,
        result: RolloutResults,
        request: RolloutRequest,
        batch: Batch,
        values: Sequence[SequenceValues],
        *,
        version: int,
    ) -> None:
        """Store the learner's values of the tokens of a step's rollouts.

        `version` is that of the weights that the step began with. A failure costs the values, not
        the step: it is a warning.
        """
        name = trajectories_name(request)
        path = self.context.dir.token_values / f"{name}.jsonl.gz"
        upload = (token_values_file(self.context.dir.attempt, name), path)

        def store() -> str | None:
            write_token_values(path, result.rollouts, batch, values, version=version)
            return self._upload(upload)

        try:
            self._warn_of_upload(request.step, await asyncio.to_thread(store))
        except (StoreFull, OSError) as error:
            message = f"the learner's values of the step's tokens are not stored: {error}"
            self._warn_once(request.step, "token_values_not_stored", message)

    async def close(self) -> None:
        """Wait for trajectories that are being stored, and upload missed files once more.

        Each for at most `CLOSE_S`.
        """
        if self._storing is not None:
            done, _ = await asyncio.wait({self._storing}, timeout=CLOSE_S)
            for storing in done:
                # The attempt ends for another reason already.
                if fault := storing.exception():
                    _log.warning("trajectories are not stored: %s", fault)
        if self._unsent and not self.context.stop.is_superseded:
            # A daemon thread: a store that does not answer must not keep the process alive.
            thread = threading.Thread(target=self._send_missed, args=(CLOSE_S,), daemon=True)
            thread.start()
            await asyncio.to_thread(thread.join, CLOSE_S)

    def _store(self, name: str, rollouts: Sequence[Rollout], request: RolloutRequest) -> str | None:
        """Write and upload trajectories and times; return the problem if an upload failed."""
        where = self.context.dir
        trajectories = where.trajectories / f"{name}.jsonl.gz"
        times = where.times / f"{name}.jsonl.gz"
        write_trajectories(trajectories, rollouts, request)
        write_times(times, rollouts)
        uploads = [
            (trajectory_file(where.attempt, name), trajectories),
            (times_file(where.attempt, name), times),
        ]
        if not self._has_vocabulary:
            write_vocabulary(where.vocabulary, load_tokenizer(self.model_dir))
            uploads.append((vocabulary_file(where.attempt), where.vocabulary))
            self._has_vocabulary = True
        return self._upload(*uploads)

    def _upload(self, *uploads: _Upload) -> str | None:
        """Upload files, and those missed before; return the problem if one of `uploads` failed.

        Raises:
            StoreFull: the store has no space for it.
        """
        for number, upload in enumerate(uploads):
            try:
                self._send(upload)
            except StoreFull:
                raise
            except StoreError as error:
                _log.warning("%s is not in the blob store: %s", upload[0], error)
                self._unsent += uploads[number:]
                return str(error)
        self._send_missed(RESEND_S)
        return None

    def _send_missed(self, limit_s: float) -> None:
        """Upload missed files, oldest first, until one fails or the time is over."""
        deadline = time.monotonic() + limit_s
        for upload in tuple(self._unsent):
            if time.monotonic() > deadline:
                return
            try:
                self._send(upload)
            except (StoreError, OSError) as error:
                _log.warning("%s is still not in the blob store: %s", upload[0], error)
                return
            # A thread abandoned at a deadline may have uploaded it meanwhile.
            with suppress(ValueError):
                self._unsent.remove(upload)

    def _send(self, upload: _Upload) -> None:
        key, path = upload
        self.context.store.put_file(self.context.key(key), path)

    def _warn_of_upload(self, step: int, problem: str | None) -> None:
        if problem is None:
            return
        message = f"trajectories stay on the trainer's disk until the store accepts them: {problem}"
        self._warn_once(step, "trajectories_not_stored", message)

    def _warn_once(self, step: int, code: str, message: str) -> None:
        if code not in self._warned:
            self._warned.add(code)
            self.context.journal.emit(RunWarning(step=step, code=code, message=message))

    def _report_degraded(self, rollouts: Sequence[Rollout], request: RolloutRequest) -> None:
        by_env: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            if rollout.trajectory.stop_reason is not StopReason.NOT_STARTED:
                by_env.setdefault(rollout.trajectory.task.env_key, []).append(rollout)
        for env_key, group in by_env.items():
            errors = [_error_codes(rollout) for rollout in group]
            rate = sum(map(bool, errors)) / len(group)
            if rate >= DEGRADED_RATE:
                codes = Counter(code for codes in errors for code in codes)
                self.context.journal.emit(
                    EnvDegraded(
                        step=request.step,
                        env_key=env_key,
                        infra_error_rate=rate,
                        reasons=dict(codes),
                        detail=commonest_detail(group),
                    )
                )


def _error_codes(rollout: Rollout) -> tuple[str, ...]:
    """Codes of the rollout's errors that its environment caused."""
    outcome = rollout.trajectory.outcome
    is_ungraded = outcome.status is OutcomeStatus.UNGRADED and outcome.reason != SAMPLING_LATE
    return rollout.infra_errors or ((NO_SCORE,) if is_ungraded else ())
