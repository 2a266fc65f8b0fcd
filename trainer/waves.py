"""Runs a wave of rollouts and keeps what it produced: trajectory file, rows, warnings."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.contract.events import EnvDegraded, PhaseStarted, RunWarning
from trainer.contract.outcomes import OutcomeRow, OutcomeStatus, StopReason
from trainer.contract.rundir import TRAJECTORIES, AttemptDir, run_key, trajectory_file
from trainer.errors import EnvironmentOutage
from trainer.rollouts.collect import Collector
from trainer.rollouts.dump import wave_name, write_trajectories
from trainer.rollouts.outcomes import outcome_rows
from trainer.rollouts.redrawing import DrawnGroup
from trainer.rollouts.stream import GroupStream, Taken
from trainer.rollouts.wave import Rollout, Wave
from trainer.sinks.journal import Journal
from trainer.stopping import Stop
from trainer.storage import space_checked
from trainer.stores.base import BlobStore, StoreError, StoreFull
from trainer.types import Task

NOTICEABLE = 0.1
"""Share of an environment's rollouts that met an infra error from which an event says so."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveResult:
    """Rollouts by task, and one row per rollout in the same order."""

    rollouts: tuple[DrawnGroup, ...]
    rows: tuple[OutcomeRow, ...]


@dataclass(slots=True, kw_only=True)
class Waves:
    """Rolls out, stores the trajectories, and reports environments in trouble."""

    collector: Collector
    journal: Journal
    stop: Stop
    store: BlobStore
    attempt_dir: AttemptDir
    max_infra_error_rate: float
    _unstored: bool = False

    async def run(self, tasks: Sequence[Task], wave: Wave) -> WaveResult:
        """Roll out `tasks` to the end.

        Raises:
            StopRequested, AttemptSuperseded: asked to stop; rollouts in flight are cancelled.
            EnvironmentOutage: too many rollouts have no grade.
            StorageFull: the trajectories cannot be written.
        """
        self.announce(wave, num_groups=len(tasks))
        return await self.keep(await self.stop.unless(self.collector.collect(tasks, wave)), wave)

    async def take(self, stream: GroupStream, wave: Wave) -> tuple[Taken, WaveResult]:
        """Return what a training step learns from, and every rollout that was made for it.

        Raises:
            StopRequested, AttemptSuperseded, EnvironmentOutage, StorageFull: as `run`.
        """
        self.announce(wave, num_groups=stream.batch_size)
        taken = await self.stop.unless(stream.take(wave.step))
        return taken, await self.keep((*taken.groups, *taken.dropped), wave)

    def announce(self, wave: Wave, *, num_groups: int) -> None:
        """Say that the rollouts of a wave begin."""
        self.journal.emit(
            PhaseStarted,
            step=wave.step,
            phase="eval" if wave.split == "eval" else "rollout",
            decoding=wave.decoding if wave.split == "eval" else None,
            num_rollouts=num_groups * wave.n_samples_per_prompt,
        )

    async def keep(self, groups: Sequence[DrawnGroup], wave: Wave) -> WaveResult:
        """Store the trajectories of a wave and report what went wrong.

        Raises:
            EnvironmentOutage, StorageFull: as `run`.
        """
        flat = [rollout for group in groups for rollout in group]
        name = wave_name(wave)
        with space_checked(self.attempt_dir.path):
            await asyncio.to_thread(self._store, name, flat, wave)
        rows = outcome_rows(flat, wave, trajectory_key=f"{TRAJECTORIES}/{name}.jsonl.gz")
        self._report_trouble(flat, wave)
        self._refuse_outage(rows)
        return WaveResult(rollouts=tuple(groups), rows=rows)

    def _store(self, name: str, rollouts: Sequence[Rollout], wave: Wave) -> None:
        path = self.attempt_dir.trajectories / f"{name}.jsonl.gz"
        write_trajectories(path, rollouts, wave)
        key = trajectory_file(self.attempt_dir.attempt, name)
        try:
            self.store.put_file(run_key(self.attempt_dir.run_dir.name, key), path)
        except StoreFull:
            raise
        except StoreError as error:
            _log.warning("%s is not in the blob store: %s", name, error)
            self._warn_once(wave.step, str(error))

    def _warn_once(self, step: int, problem: str) -> None:
        if self._unstored:
            return
        self._unstored = True
        message = f"trajectories stay on the trainer's disk: {problem}"
        self.journal.emit(RunWarning, step=step, code="trajectories_not_stored", message=message)

    def _report_trouble(self, rollouts: Sequence[Rollout], wave: Wave) -> None:
        by_env: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            by_env.setdefault(rollout.trajectory.task.env_key, []).append(rollout)
        for env_key, group in by_env.items():
            rate = sum(bool(rollout.infra_errors) for rollout in group) / len(group)
            if rate >= NOTICEABLE:
                codes = Counter(code for rollout in group for code in rollout.infra_errors)
                self.journal.emit(
                    EnvDegraded,
                    step=wave.step,
                    env_key=env_key,
                    infra_error_rate=rate,
                    reasons=dict(codes),
                )

    def _refuse_outage(self, rows: Sequence[OutcomeRow]) -> None:
        begun = [row for row in rows if row.stop_reason is not StopReason.NOT_STARTED]
        missing = [row for row in begun if row.status is not OutcomeStatus.GRADED]
        rate = len(missing) / len(begun) if begun else 0.0
        if rate <= self.max_infra_error_rate:
            return
        worst = Counter(f"{row.env_key}: {row.reason}" for row in missing).most_common(1)[0][0]
        raise EnvironmentOutage(
            f"{len(missing)} of {len(begun)} rollouts have no grade ({rate:.0%}, allowed"
            f" {self.max_infra_error_rate:.0%}); most often {worst}"
        )
