"""The attempts a runner holds: their trainers, from the start or the adoption to the end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from trainer.contract.launch import AttemptEnd, LaunchPlan
from trainer.contract.reasons import ReasonCode
from trainer.contract.spec import LIGHT_KINDS
from trainer.handover.launch import Launcher, launch_failure, read_pid, write_pid
from trainer.handover.processes import (
    TrainerProcess,
    find_leader,
    is_alive,
    kill_marked,
    marked,
)
from worker.runner.journal import HeldAttempt, Journal

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Trainer:
    """A trainer that was alive when last looked at."""

    process: TrainerProcess
    asked_to_stop: bool = False


@dataclass(slots=True)
class Holdings:
    """What the runner holds. The journal is written before anything is done."""

    launcher: Launcher
    journal: Journal
    trainers: dict[str, Trainer] = field(default_factory=dict)
    gone: dict[str, Trainer | None] = field(default_factory=dict)
    """Attempts whose trainer is gone and whose end is not told yet."""

    @property
    def busy_slots(self) -> int:
        """Slots taken: trainers alive, and ends still being concluded."""
        return len(self.trainers) + len(self.gone) - self.num_light

    @property
    def num_light(self) -> int:
        """Those of them that take no slot."""
        held = (self.journal.get(name) for name in (*self.trainers, *self.gone))
        return sum(each.light for each in held if each is not None)

    def names(self) -> tuple[str, ...]:
        """Every attempt the service must not give up yet: also those whose end it has to hear."""
        return tuple(held.attempt_id for held in self.journal.all())

    def recover(self) -> None:
        """Adopt the trainers that an earlier runner left, and notice those that are gone."""
        self.journal.load()
        for held in self.journal.all():
            if held.end is None:
                self._recover(held)
        self._kill_strangers()

    def begin(self, plan: LaunchPlan) -> None:
        """Start a claimed attempt; a failure becomes the attempt's end."""
        held = HeldAttempt(
            attempt_id=plan.attempt_id,
            run_id=plan.run_id,
            attempt=plan.attempt,
            light=plan.spec.kind in LIGHT_KINDS,
        )
        where = self.launcher.directory(plan.run_id, plan.attempt)
        try:
            self.journal.put(held)
            self.launcher.prepare(plan)
            self.journal.put(held.model_copy(update={"launched": True}))
            process = self.launcher.start(plan, where)
        except OSError as error:
            log.warning("attempt %s cannot start: %s", plan.attempt_id, error)
            self.close(held, launch_failure(error, where.path))
            return
        self.trainers[plan.attempt_id] = Trainer(process)
        log.info("started attempt %s as pid %d", plan.attempt_id, process.record.pid)

    def look(self) -> None:
        """Notice the trainers that are gone."""
        for attempt_id, trainer in list(self.trainers.items()):
            if not trainer.process.running():
                self.gone[attempt_id] = self.trainers.pop(attempt_id)
                log.info("the trainer of attempt %s is gone", attempt_id)

    def stop(self, attempt_id: str) -> None:
        """Ask a trainer, once, to checkpoint and leave."""
        trainer = self.trainers.get(attempt_id)
        if trainer is not None and not trainer.asked_to_stop:
            log.info("asking attempt %s to stop", attempt_id)
            self._note_stop(attempt_id)
            trainer.asked_to_stop = True
            trainer.process.terminate()

    def kill(self, attempt_id: str) -> None:
        """End a trainer at once."""
        trainer = self.trainers.get(attempt_id)
        if trainer is not None:
            log.info("killing attempt %s", attempt_id)
            trainer.asked_to_stop = True
            trainer.process.kill()

    def close(self, held: HeldAttempt, end: AttemptEnd) -> None:
        """Write down how an attempt ended; what its trainer left running is killed."""
        if num_left := kill_marked(self.launcher.place.own_dir, held.attempt_id):
            log.warning("killed %d processes that attempt %s left", num_left, held.attempt_id)
        try:
            self.journal.put(held.model_copy(update={"end": end}))
        except OSError as error:
            log.warning("the end of attempt %s is only in memory: %s", held.attempt_id, error)
        self.gone.pop(held.attempt_id, None)

    def _note_stop(self, attempt_id: str) -> None:
        held = self.journal.get(attempt_id)
        if held is None:
            return
        try:
            self.journal.put(held.model_copy(update={"stop_sent": True}))
        except OSError as error:
            log.warning("the stop of attempt %s is only in memory: %s", attempt_id, error)

    def _recover(self, held: HeldAttempt) -> None:
        if not held.launched:
            message = "the runner was stopped before it started the trainer"
            end = AttemptEnd(reason=ReasonCode.RUNNER_LOST, message=message, last_trainer_seq=0)
            self.close(held, end)
            return
        where = self.launcher.directory(held.run_id, held.attempt)
        record = read_pid(where)
        if record is None or not is_alive(record):
            record = find_leader(self.launcher.place.own_dir, held.attempt_id)
            if record is None:
                self.gone[held.attempt_id] = None
                return
            write_pid(where, record)
        log.info("adopted attempt %s, pid %d", held.attempt_id, record.pid)
        self.trainers[held.attempt_id] = Trainer(
            TrainerProcess(record=record), asked_to_stop=held.stop_sent
        )

    def _kill_strangers(self) -> None:
        """End what carries our mark but belongs to no attempt we know."""
        for owner, process in list(marked(self.launcher.place.own_dir)):
            if self.journal.get(owner) is None:
                log.warning("killing pid %d: nobody knows its attempt %r", process.pid, owner)
                process.kill()
