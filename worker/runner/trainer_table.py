"""The table of a runner's trainers, from start or adoption to their end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from hillclimb.process.identity import (
    TrainerProcess,
    find_marked,
    find_trainer_process,
    is_alive,
    kill_marked,
)
from hillclimb.process.launcher import Launcher, launch_failure, read_pid, write_pid
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport, LaunchPlan
from worker.runner.journal import ClaimedAttempt, RunnerJournal
from worker.runner.secrets import AttemptSecrets

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ManagedTrainer:
    """A trainer that was alive at the last poll."""

    process: TrainerProcess
    stop_requested: bool = False


@dataclass(slots=True)
class TrainerTable:
    """Claimed attempts and their trainers. The journal is written before every action."""

    launcher: Launcher
    journal: RunnerJournal
    secrets: AttemptSecrets
    trainers: dict[str, ManagedTrainer] = field(default_factory=dict)
    exited: dict[str, ManagedTrainer | None] = field(default_factory=dict)
    """Attempts whose trainer has exited and whose end is not recorded yet."""

    @property
    def busy_slots(self) -> int:
        """Slots in use: by live trainers, and by exited ones being finished."""
        return len(self.trainers) + len(self.exited)

    def attempt_ids(self) -> tuple[str, ...]:
        """Return every attempt that the service must not give up, also those with an unsent end."""
        return tuple(entry.attempt_id for entry in self.journal.all())

    def recover(self) -> None:
        """Adopt the live trainers of an earlier runner, and find those that have exited."""
        self.journal.load()
        for entry in self.journal.all():
            if entry.end is None:
                self._recover(entry)
        self._kill_unknown()

    def start(self, plan: LaunchPlan) -> None:
        """Start a claimed attempt's trainer; a failure becomes the attempt's end."""
        entry = ClaimedAttempt(
            attempt_id=plan.attempt_id,
            run_id=plan.run_id,
            attempt=plan.attempt,
        )
        attempt_dir = self.launcher.directory(plan.run_id, plan.attempt)
        try:
            self.journal.put(entry)
            self.secrets.put(plan.attempt_id, plan.secrets)
            self.launcher.prepare(plan)
            self.journal.put(entry.model_copy(update={"launched": True}))
            process = self.launcher.start(plan, attempt_dir)
        except OSError as error:
            log.warning("attempt %s cannot start: %s", plan.attempt_id, error)
            self.finish(entry, launch_failure(error, attempt_dir.path))
            return
        self.trainers[plan.attempt_id] = ManagedTrainer(process)
        log.info("started attempt %s as pid %d", plan.attempt_id, process.record.pid)

    def poll(self) -> None:
        """Move the trainers that have exited to `exited`."""
        for attempt_id, trainer in list(self.trainers.items()):
            if not trainer.process.running():
                self.exited[attempt_id] = self.trainers.pop(attempt_id)
                log.info("the trainer of attempt %s has exited", attempt_id)

    def stop(self, attempt_id: str) -> None:
        """Ask a trainer, once, to checkpoint and exit."""
        trainer = self.trainers.get(attempt_id)
        if trainer is not None and not trainer.stop_requested:
            log.info("asking attempt %s to stop", attempt_id)
            self._record_stop(attempt_id)
            trainer.stop_requested = True
            trainer.process.terminate()

    def kill(self, attempt_id: str) -> None:
        """Kill a trainer at once."""
        trainer = self.trainers.get(attempt_id)
        if trainer is not None:
            log.info("killing attempt %s", attempt_id)
            trainer.stop_requested = True
            trainer.process.kill()

    def finish(self, entry: ClaimedAttempt, end: EndReport, *, keeps_secrets: bool = False) -> None:
        """Record an attempt's end, and kill the processes that its trainer left.

        `keeps_secrets`: its platform is still to be swept with them.
        """
        if num_left := kill_marked(self.launcher.host.own_dir, entry.attempt_id):
            log.warning("killed %d processes that attempt %s left", num_left, entry.attempt_id)
        try:
            self.journal.put(entry.model_copy(update={"end": end}))
        except OSError as error:
            log.warning("the end of attempt %s is only in memory: %s", entry.attempt_id, error)
        if not keeps_secrets:
            self.secrets.remove(entry.attempt_id)
        self.exited.pop(entry.attempt_id, None)

    def _record_stop(self, attempt_id: str) -> None:
        entry = self.journal.get(attempt_id)
        if entry is None:
            return
        try:
            self.journal.put(entry.model_copy(update={"stop_sent": True}))
        except OSError as error:
            log.warning("the stop of attempt %s is only in memory: %s", attempt_id, error)

    def _recover(self, entry: ClaimedAttempt) -> None:
        if not entry.launched:
            message = "the runner was stopped before it started the trainer"
            end = EndReport(reason=ReasonCode.RUNNER_LOST, message=message, last_trainer_seq=0)
            self.finish(entry, end)
            return
        attempt_dir = self.launcher.directory(entry.run_id, entry.attempt)
        record = read_pid(attempt_dir)
        if record is None or not is_alive(record):
            record = find_trainer_process(self.launcher.host.own_dir, entry.attempt_id)
            if record is None:
                self.exited[entry.attempt_id] = None
                return
            write_pid(attempt_dir, record)
        log.info("adopted attempt %s, pid %d", entry.attempt_id, record.pid)
        self.trainers[entry.attempt_id] = ManagedTrainer(
            TrainerProcess(record=record), stop_requested=entry.stop_sent
        )

    def _kill_unknown(self) -> None:
        """Kill marked processes of attempts that the journal does not have."""
        for owner, process in list(find_marked(self.launcher.host.own_dir)):
            if self.journal.get(owner) is None:
                log.warning("killing pid %d of the unknown attempt %r", process.pid, owner)
                process.kill()
