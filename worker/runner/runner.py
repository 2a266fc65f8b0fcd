"""The runner's loop: look, report, heartbeat, claim; and how it leaves.

One thread does all of it in short steps; only the mirroring of a dead trainer's tail, which may
wait for a slow store, has a thread of its own. Losing the service changes nothing for trainers.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from trainer.contract.launch import AttemptEnd, Heartbeat, RegisteredRunner, RegisterRunner
from trainer.contract.spec import RUN_KINDS
from trainer.handover.ending import attempt_end
from trainer.handover.mirror import TailMirror
from trainer.handover.processes import kill_marked
from trainer.handover.sweep import Sweeper
from worker.runner.client import ServiceClient
from worker.runner.errors import RunnerUnknown, ServiceRefused, ServiceUnreachable, TokenRefused
from worker.runner.holdings import Holdings
from worker.runner.journal import HeldAttempt
from worker.runner.settings import RunnerSettings

log = logging.getLogger(__name__)

TICK_S = 0.2
CLAIM_INTERVAL_S = 0.5
LIGHT_AT_ONCE = 2
"""Attempts that take no slot, beside those that do."""
RETRY_S = 1.0
REPORT_GRACE_S = 5.0
"""How long a stopping runner tries to tell the service how its trainers ended."""


@dataclass(slots=True)
class Runner:
    """Owns the trainers of one machine. `stopping` is set by a signal."""

    settings: RunnerSettings
    client: ServiceClient
    holdings: Holdings
    mirror: TailMirror
    sweeper: Sweeper
    stopping: bool = False
    _registered: RegisteredRunner | None = None
    _register_again: bool = True
    _due: dict[str, float] = field(default_factory=dict)
    _reachable: bool = True
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _concluding: dict[str, Future[AttemptEnd]] = field(default_factory=dict)

    def run(self) -> None:
        """Work until `stopping`; then let the trainers checkpoint and leave.

        Raises TokenRefused when the service does not know our token.
        """
        self.holdings.recover()
        while not self.stopping:
            self._tick(draining=False)
            time.sleep(TICK_S)
        self._drain()

    def _tick(self, *, draining: bool) -> None:
        self.holdings.look()
        self._conclude()
        self._every("register", RETRY_S, self._register)
        if self._registered is None:
            return
        self._every("report", RETRY_S, self._report)
        pause = self._registered.heartbeat_interval_s
        self._every("heartbeat", pause, lambda: self._heartbeat(draining=draining))
        if draining:
            return
        if self.holdings.busy_slots < self.settings.slots:
            self._every("claim", CLAIM_INTERVAL_S, self._claim)
        elif self.holdings.num_light < LIGHT_AT_ONCE:
            self._every("claim", CLAIM_INTERVAL_S, lambda: self._claim(only_light=True))

    def _drain(self) -> None:
        held = list(self.holdings.trainers)
        log.info("stopping: %d trainers checkpoint and leave", len(held))
        for attempt_id in held:
            self.holdings.stop(attempt_id)
        self._due.clear()
        self._tick(draining=True)  # the service hears in any case that we take nothing more
        self._tick_until(lambda: not self.holdings.trainers, self.settings.stop_timeout_s)
        for attempt_id in list(self.holdings.trainers):
            log.warning("attempt %s did not leave in time", attempt_id)
            self.holdings.kill(attempt_id)
        self._tick_until(lambda: not self.holdings.journal.all(), REPORT_GRACE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tick_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            self._tick(draining=True)
            time.sleep(TICK_S)

    def _conclude(self) -> None:
        """Mirror the tail of trainers that are gone, then write down how they ended."""
        for attempt_id, trainer in list(self.holdings.gone.items()):
            held = self.holdings.journal.get(attempt_id)
            if held is None:
                self.holdings.gone.pop(attempt_id)
            elif attempt_id not in self._concluding:
                code = trainer.process.exit_code if trainer else None
                asked = trainer.asked_to_stop if trainer else held.stop_sent
                task = self._pool.submit(self._read_end, held, code, asked_to_stop=asked)
                self._concluding[attempt_id] = task
            elif self._concluding[attempt_id].done():
                end = self._concluding.pop(attempt_id).result()
                self.holdings.close(held, end)
                self._due.pop("report", None)

    def _read_end(
        self, held: HeldAttempt, exit_code: int | None, *, asked_to_stop: bool
    ) -> AttemptEnd:
        where = self.holdings.launcher.directory(held.run_id, held.attempt)
        self.mirror.complete(held.run_id, where)
        # Whoever is left of the attempt would go on holding what is swept.
        kill_marked(self.settings.own_dir, held.attempt_id)
        self.sweeper.sweep(where)
        return attempt_end(where, exit_code, asked_to_stop=asked_to_stop, mask=self.mirror.mask)

    def _register(self) -> None:
        if not self._register_again:
            return
        body = RegisterRunner(
            name=self.settings.name,
            slots=self.settings.slots,
            kinds=RUN_KINDS,
            hostname=socket.gethostname(),
            attempts=self.holdings.names(),
        )
        self._registered = self.client.register(body)
        self._register_again = False
        log.info("registered as %s (%s)", self.settings.name, self._registered.runner_id)
        if self.settings.ready_file is not None:
            self.settings.ready_file.parent.mkdir(parents=True, exist_ok=True)
            self.settings.ready_file.write_text(self._registered.runner_id)

    def _heartbeat(self, *, draining: bool) -> None:
        reply = self.client.heartbeat(
            self._runner_id, Heartbeat(attempts=self.holdings.names(), draining=draining)
        )
        self._note(reachable=True, why="")
        for command in reply.commands:
            if command.action == "kill":
                self.holdings.kill(command.attempt_id)
            else:
                self.holdings.stop(command.attempt_id)

    def _claim(self, *, only_light: bool = False) -> None:
        plan = self.client.claim(self._runner_id, only_light=only_light)
        if plan is not None:
            self.holdings.begin(plan)
            self._due.pop("report", None)

    def _report(self) -> None:
        for held in self.holdings.journal.all():
            if held.end is None:
                continue
            try:
                self.client.report_end(self._runner_id, held.attempt_id, held.end)
            except (TokenRefused, RunnerUnknown):
                raise
            except ServiceRefused as error:
                log.warning("the service does not want the end of %s: %s", held.attempt_id, error)
            self.holdings.journal.remove(held.attempt_id)
            self._due.pop("claim", None)

    @property
    def _runner_id(self) -> str:
        assert self._registered is not None
        return self._registered.runner_id

    def _every(self, name: str, interval_s: float, action: Callable[[], None]) -> None:
        """Do `action` when it is due; what the service answers decides when it is due again."""
        now = time.monotonic()
        if now < self._due.get(name, 0.0):
            return
        self._due[name] = now + interval_s
        try:
            action()
        except ServiceUnreachable as error:
            self._due[name] = now + RETRY_S
            self._note(reachable=False, why=str(error))
        except RunnerUnknown as error:
            log.warning("registering again: %s", error)
            self._register_again = True
        except TokenRefused:
            raise
        except ServiceRefused as error:
            log.error("the service refused: %s", error)  # noqa: TRY400

    def _note(self, *, reachable: bool, why: str) -> None:
        """Log the change, not every failed try."""
        if reachable and not self._reachable:
            log.warning("the service answers again")
        if not reachable and self._reachable:
            log.warning("the service does not answer, trainers go on: %s", why)
        self._reachable = reachable
