"""Runs a wave of rollouts and keeps what it produced: trajectory file, rows, warnings."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from trainer.contract.events import EnvDegraded, PhaseStarted, RunWarning
from trainer.contract.outcomes import OutcomeRow, OutcomeStatus, StopReason
from trainer.contract.rundir import TRAJECTORIES, AttemptDir, run_key, trajectory_file
from trainer.rollouts.collect import Collector
from trainer.rollouts.dump import wave_name, write_trajectories
from trainer.rollouts.outage import refuse_outage
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
"""Share of an environment's rollouts in trouble from which an event says so."""
NO_SCORE = "no_score"
"""Stands among the codes of infra errors for a verifier that answers without a score."""
AGAIN_S = 20.0
"""For how long files are sent that the store has missed, once it takes one again."""
CLOSE_S = 10.0
"""For how long they are at the end."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveResult:
    """Rollouts by draw, and one row per rollout in the same order."""

    rollouts: tuple[DrawnGroup, ...]
    rows: tuple[OutcomeRow, ...]

    @property
    def groups(self) -> tuple[tuple[OutcomeRow, ...], ...]:
        """The rows by draw: a step may draw a task more than once."""
        rows = iter(self.rows)
        return tuple(tuple(islice(rows, len(group))) for group in self.rollouts)


@dataclass(slots=True, kw_only=True)
class Waves:
    """Rolls out, stores the trajectories, and reports environments in trouble."""

    collector: Collector
    journal: Journal
    stop: Stop
    store: BlobStore
    attempt_dir: AttemptDir
    max_infra_error_rate: float
    _has_warned: bool = False
    _unsent: list[str] = field(default_factory=list)
    """Names of the files that the store has missed, oldest first."""

    async def run(self, tasks: Sequence[Task], wave: Wave) -> WaveResult:
        """Roll out `tasks` to the end.

        Raises:
            StopRequested, AttemptSuperseded: asked to stop; rollouts in flight are cancelled.
            EnvironmentOutage, SpecError: too many rollouts have no grade; see `refuse_outage`.
            StorageFull: the trajectories cannot be written.
        """
        self.announce(wave, num_groups=len(tasks))
        return await self.keep(await self.stop.unless(self.collector.collect(tasks, wave)), wave)

    async def take(self, stream: GroupStream, wave: Wave) -> tuple[Taken, WaveResult]:
        """Return what a training step learns from, and every rollout that was made for it.

        Raises:
            StopRequested, AttemptSuperseded, EnvironmentOutage, SpecError, StorageFull: as
                `run`.
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
            EnvironmentOutage, SpecError, StorageFull: as `run`.
        """
        flat = [rollout for group in groups for rollout in group]
        name = wave_name(wave)
        with space_checked(self.attempt_dir.path):
            problem = await asyncio.to_thread(self._store, name, flat, wave)
        if problem:
            self._warn_once(wave.step, problem)
        rows = outcome_rows(flat, wave, trajectory_key=f"{TRAJECTORIES}/{name}.jsonl.gz")
        self._report_trouble(flat, wave)
        refuse_outage(flat, max_infra_error_rate=self.max_infra_error_rate)
        return WaveResult(rollouts=tuple(groups), rows=rows)

    async def close(self) -> None:
        """Send what the store has missed once more, for a few seconds."""
        if self._unsent and not self.stop.is_superseded:
            # A thread that may be left behind: a store that is away does not keep the trainer here.
            sending = threading.Thread(target=self._send_missed, args=(CLOSE_S,), daemon=True)
            sending.start()
            await asyncio.to_thread(sending.join, CLOSE_S)

    def _store(self, name: str, rollouts: Sequence[Rollout], wave: Wave) -> str | None:
        """Write the file and send it; return why the store does not have it, if it does not."""
        write_trajectories(self._path(name), rollouts, wave)
        try:
            self._send(name)
        except StoreFull:
            raise
        except StoreError as error:
            _log.warning("%s is not in the blob store: %s", name, error)
            self._unsent.append(name)
            return str(error)
        self._send_missed(AGAIN_S)
        return None

    def _send_missed(self, limit_s: float) -> None:
        """Send what the store has missed, oldest first, until it fails or the time is over."""
        deadline = time.monotonic() + limit_s
        for name in tuple(self._unsent):
            if time.monotonic() > deadline:
                return
            try:
                self._send(name)
            except (StoreError, OSError) as error:
                _log.warning("%s is still not in the blob store: %s", name, error)
                return
            # A thread that a deadline left behind may have sent it meanwhile.
            with suppress(ValueError):
                self._unsent.remove(name)

    def _send(self, name: str) -> None:
        key = trajectory_file(self.attempt_dir.attempt, name)
        self.store.put_file(run_key(self.attempt_dir.run_dir.name, key), self._path(name))

    def _path(self, name: str) -> Path:
        return self.attempt_dir.trajectories / f"{name}.jsonl.gz"

    def _warn_once(self, step: int, problem: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        message = f"trajectories stay on the trainer's disk until the store takes them: {problem}"
        self.journal.emit(RunWarning, step=step, code="trajectories_not_stored", message=message)

    def _report_trouble(self, rollouts: Sequence[Rollout], wave: Wave) -> None:
        by_env: dict[str, list[Rollout]] = {}
        for rollout in rollouts:
            if rollout.trajectory.stop_reason is not StopReason.NOT_STARTED:
                by_env.setdefault(rollout.trajectory.task.env_key, []).append(rollout)
        for env_key, group in by_env.items():
            troubles = [_troubles(rollout) for rollout in group]
            rate = sum(map(bool, troubles)) / len(group)
            if rate >= NOTICEABLE:
                codes = Counter(code for each in troubles for code in each)
                self.journal.emit(
                    EnvDegraded,
                    step=wave.step,
                    env_key=env_key,
                    infra_error_rate=rate,
                    reasons=dict(codes),
                )


def _troubles(rollout: Rollout) -> tuple[str, ...]:
    """Codes of what the rollout met that was not the policy's doing."""
    is_ungraded = rollout.trajectory.outcome.status is OutcomeStatus.UNGRADED
    return rollout.infra_errors or ((NO_SCORE,) if is_ungraded else ())
