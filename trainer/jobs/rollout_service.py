"""Runs rollout requests and stores the results: trajectory file, outcome rows, warnings."""

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

from hillclimb.blobs.base import StoreError, StoreFull
from hillclimb.environment.task import Task
from hillclimb.protocol.events import EnvDegraded, PhaseStarted, RunWarning
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.protocol.rundir import TRAJECTORIES, times_file, trajectory_file
from trainer.attempt.context import AttemptContext
from trainer.attempt.storage import raise_storage_full
from trainer.rollouts.groups.buffer import RolloutBatch, RolloutBuffer
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.groups.outage import commonest_detail, refuse_outage
from trainer.rollouts.groups.resampling import RolloutGroup
from trainer.rollouts.groups.until_enough import StopRule
from trainer.rollouts.records.dump import trajectories_name, write_trajectories
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.records.times import write_times
from trainer.rollouts.request import Rollout, RolloutRequest

DEGRADED_RATE = 0.1
"""Share of an environment's rollouts with infra errors from which `env.degraded` is emitted."""
NO_SCORE = "no_score"
"""Code, among those of infra errors, for a verifier that answers without a score."""
RESEND_S = 20.0
"""Time limit for uploading missed files, once the store accepts one again (seconds)."""
CLOSE_S = 10.0
"""Time limit for uploading missed files at the end of the attempt (seconds)."""
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
    _has_warned: bool = False
    _unsent: list[str] = field(default_factory=list)
    """Names of the requests whose files could not be uploaded, oldest first."""

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

        Raises:
            StopRequested, AttemptSuperseded, EnvironmentOutage, SpecError, StorageFull: as
                `run`.
        """
        self.announce(request, num_groups=buffer.batch_size)
        batch = await self.context.stop.race(buffer.next_batch(request.step))
        return batch, await self.record((*batch.groups, *batch.dropped), request)

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
        self, groups: Sequence[RolloutGroup], request: RolloutRequest
    ) -> RolloutResults:
        """Store the trajectories of a request and report infra errors.

        Raises:
            EnvironmentOutage, SpecError, StorageFull: as `run`.
        """
        flat = [rollout for group in groups for rollout in group]
        name = trajectories_name(request)
        with raise_storage_full(self.context.dir.path):
            problem = await asyncio.to_thread(self._store, name, flat, request)
        if problem:
            self._warn_once(request.step, problem)
        rows = await asyncio.to_thread(
            outcome_rows,
            flat,
            request,
            trajectory_key=f"{TRAJECTORIES}/{name}.jsonl.gz",
            pass_threshold=self.context.spec.eval.pass_threshold,
        )
        self._report_degraded(flat, request)
        refuse_outage(flat, max_infra_error_rate=self.max_infra_error_rate)
        return RolloutResults(groups=tuple(groups), rows=rows)

    async def close(self) -> None:
        """Upload the missed files once more, for at most `CLOSE_S`."""
        if self._unsent and not self.context.stop.is_superseded:
            # A daemon thread: a store that does not answer must not keep the process alive.
            thread = threading.Thread(target=self._send_missed, args=(CLOSE_S,), daemon=True)
            thread.start()
            await asyncio.to_thread(thread.join, CLOSE_S)

    def _store(self, name: str, rollouts: Sequence[Rollout], request: RolloutRequest) -> str | None:
        """Write and upload trajectories and times; return the problem if an upload failed."""
        write_trajectories(self._path(name), rollouts, request)
        write_times(self._times_path(name), rollouts)
        try:
            self._send(name)
        except StoreFull:
            raise
        except StoreError as error:
            _log.warning("%s is not in the blob store: %s", name, error)
            self._unsent.append(name)
            return str(error)
        self._send_missed(RESEND_S)
        return None

    def _send_missed(self, limit_s: float) -> None:
        """Upload missed files, oldest first, until one fails or the time is over."""
        deadline = time.monotonic() + limit_s
        for name in tuple(self._unsent):
            if time.monotonic() > deadline:
                return
            try:
                self._send(name)
            except (StoreError, OSError) as error:
                _log.warning("%s is still not in the blob store: %s", name, error)
                return
            # A thread abandoned at a deadline may have uploaded it meanwhile.
            with suppress(ValueError):
                self._unsent.remove(name)

    def _send(self, name: str) -> None:
        context = self.context
        for key, path in (
            (trajectory_file(context.dir.attempt, name), self._path(name)),
            (times_file(context.dir.attempt, name), self._times_path(name)),
        ):
            context.store.put_file(context.key(key), path)

    def _path(self, name: str) -> Path:
        return self.context.dir.trajectories / f"{name}.jsonl.gz"

    def _times_path(self, name: str) -> Path:
        return self.context.dir.times / f"{name}.jsonl.gz"

    def _warn_once(self, step: int, problem: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        message = f"trajectories stay on the trainer's disk until the store accepts them: {problem}"
        self.context.journal.emit(
            RunWarning(step=step, code="trajectories_not_stored", message=message)
        )

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
    """Codes of the rollout's errors that were not caused by the policy."""
    is_ungraded = rollout.trajectory.outcome.status is OutcomeStatus.UNGRADED
    return rollout.infra_errors or ((NO_SCORE,) if is_ungraded else ())
