"""The runner's loop: poll trainers, report ends, send heartbeats, claim attempts; and its shutdown.

One thread does all of it in short steps. Only uploading an exited trainer's tail, which may wait
for a slow store, has a thread of its own. An unreachable service changes nothing for trainers.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from hillclimb.process import tracing
from hillclimb.process.exit_report import attempt_end
from hillclimb.process.identity import kill_marked
from hillclimb.process.redactor import Redactor, with_secrets
from hillclimb.process.sweep import Sweeper, has_instances
from hillclimb.process.tail_upload import TailUploader
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport, Heartbeat, RegisteredRunner, RegisterRunner
from hillclimb.stack.system import alive
from worker.runner import folders
from worker.runner.client import ServiceClient
from worker.runner.errors import (
    PlanUnknown,
    RunnerUnknown,
    ServiceRefused,
    ServiceUnreachable,
    TokenRefused,
)
from worker.runner.journal import ClaimedAttempt
from worker.runner.late_sweeps import LateSweeps
from worker.runner.settings import RunnerSettings
from worker.runner.trainer_table import TrainerTable

log = logging.getLogger(__name__)

TICK_S = 0.2
CLAIM_INTERVAL_S = 0.5
FOLDERS_INTERVAL_S = 300.0
"""Between two looks at which runs were deleted, whose folders go then."""
RETRY_S = 1.0
REPORT_GRACE_S = 5.0
"""A stopping runner tries for this long to report its trainers' ends."""


@dataclass(slots=True)
class Runner:
    """Starts and watches the trainers of one machine. `stopping` is set by a signal."""

    settings: RunnerSettings
    client: ServiceClient
    table: TrainerTable
    uploader: TailUploader
    sweeper: Sweeper
    late_sweeps: LateSweeps
    stopping: bool = False
    _registered: RegisteredRunner | None = None
    _register_again: bool = True
    _due: dict[str, float] = field(default_factory=dict)
    _reachable: bool = True
    _pause_s: float | None = None
    """Between heartbeats, as the service last said."""
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _finishing: dict[str, Future[EndReport]] = field(default_factory=dict)

    def run(self) -> None:
        """Loop until `stopping`; then let the trainers checkpoint and exit.

        Raises TokenRefused when the service does not know our token.
        """
        self.table.recover()
        self.late_sweeps.load()
        while not self.stopping:
            self._tick(draining=False)
            time.sleep(TICK_S)
        self._drain()

    def _tick(self, *, draining: bool) -> None:
        alive.touch()
        self.table.poll()
        self._finish_exited()
        self.late_sweeps.poll()
        self._every("register", RETRY_S, self._register)
        if self._registered is None:
            return
        self._every("report", RETRY_S, self._report)
        pause = self._pause_s or self._registered.heartbeat_interval_s
        self._every("heartbeat", pause, lambda: self._heartbeat(draining=draining))
        if draining:
            return
        self._every("folders", FOLDERS_INTERVAL_S, self._delete_folders)
        if self.table.busy_slots < self.settings.slots:
            self._every("claim", self._claim_interval_s(pause), self._claim)

    def _claim_interval_s(self, pause_s: float) -> float:
        """Return the pause between two claims.

        Among so many runners that heartbeats are further apart than usual it is theirs: one of the
        others claims meanwhile, and the next heartbeat says whether there is anything to claim.
        """
        assert self._registered is not None
        usual_s = self._registered.heartbeat_interval_s
        return CLAIM_INTERVAL_S if pause_s <= usual_s else pause_s

    def _drain(self) -> None:
        attempt_ids = list(self.table.trainers)
        log.info("stopping: asking %d trainers to checkpoint and exit", len(attempt_ids))
        for attempt_id in attempt_ids:
            self.table.stop(attempt_id)
        self._due.clear()
        self._tick(draining=True)  # tells the service at once that we claim nothing more
        self._tick_until(lambda: not self.table.trainers, self.settings.stop_timeout_s)
        for attempt_id in list(self.table.trainers):
            log.warning("the trainer of attempt %s did not exit in time", attempt_id)
            self.table.kill(attempt_id)
        self._tick_until(lambda: not self.table.journal.all(), REPORT_GRACE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.late_sweeps.close()

    def _tick_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            self._tick(draining=True)
            time.sleep(TICK_S)

    def _finish_exited(self) -> None:
        """Upload the tail of exited trainers in the background, then record their ends."""
        for attempt_id, trainer in list(self.table.exited.items()):
            entry = self.table.journal.get(attempt_id)
            if entry is None:
                self.table.exited.pop(attempt_id)
            elif attempt_id not in self._finishing:
                code = trainer.process.exit_code if trainer else None
                stop_requested = trainer.stop_requested if trainer else entry.stop_sent
                task = self._pool.submit(self._read_end, entry, code, stop_requested=stop_requested)
                self._finishing[attempt_id] = task
            elif self._finishing[attempt_id].done():
                end = self._finishing.pop(attempt_id).result()
                if has_instances(self.table.launcher.directory(entry.run_id, entry.attempt)):
                    self.late_sweeps.add(attempt_id, entry.run_id, entry.attempt)
                self.table.finish(entry, end, keeps_secrets=attempt_id in self.late_sweeps)
                self._due.pop("report", None)

    def _read_end(
        self, entry: ClaimedAttempt, exit_code: int | None, *, stop_requested: bool
    ) -> EndReport:
        attempt_dir = self.table.launcher.directory(entry.run_id, entry.attempt)
        variables = with_secrets(self.sweeper.environment, self.table.secrets.get(entry.attempt_id))
        redactor = Redactor.of(variables)
        replace(self.uploader, redactor=redactor).upload_tail(entry.run_id, attempt_dir)
        # Kill the attempt's other processes first: they would go on using what the sweep deletes.
        kill_marked(self.settings.own_dir, entry.attempt_id)
        replace(self.sweeper, environment=variables).sweep(attempt_dir)
        return attempt_end(attempt_dir, exit_code, stop_requested=stop_requested, redactor=redactor)

    def _register(self) -> None:
        if not self._register_again:
            return
        body = RegisterRunner(
            name=self.settings.name,
            slots=self.settings.slots,
            hostname=socket.gethostname(),
            attempts=self.table.attempt_ids(),
        )
        self._registered = self.client.register(body)
        self._register_again = False
        log.info("registered as %s (%s)", self.settings.name, self._registered.runner_id)
        if self.settings.ready_file is not None:
            self.settings.ready_file.parent.mkdir(parents=True, exist_ok=True)
            self.settings.ready_file.write_text(self._registered.runner_id)

    def _heartbeat(self, *, draining: bool) -> None:
        reply = self.client.heartbeat(
            self._runner_id, Heartbeat(attempts=self.table.attempt_ids(), draining=draining)
        )
        self._note(reachable=True, why="")
        self._pause_s = reply.heartbeat_interval_s
        if self._pause_s is not None and reply.has_work is not None:
            self._note_work(self._pause_s, is_waiting=reply.has_work)
        for command in reply.commands:
            if command.action == "kill":
                self.table.kill(command.attempt_id)
            else:
                self.table.stop(command.attempt_id)

    def _note_work(self, pause_s: float, *, is_waiting: bool) -> None:
        """Among many runners, claim now if something waits, and not before the next heartbeat."""
        assert self._registered is not None
        if pause_s > self._registered.heartbeat_interval_s:
            self._due["claim"] = 0.0 if is_waiting else time.monotonic() + 2 * pause_s

    def _claim(self) -> None:
        try:
            plan = self.client.claim(self._runner_id)
        except PlanUnknown as error:
            end = EndReport(reason=ReasonCode.SPEC_REJECTED, message=str(error), last_trainer_seq=0)
            self.client.report_end(self._runner_id, error.attempt_id, end)
            raise
        if plan is not None:
            with tracing.span(f"start attempt {plan.attempt}", parent=plan.traceparent or ""):
                self.table.start(plan)
            self._due.pop("report", None)

    def _delete_folders(self) -> None:
        busy = {entry.run_id for entry in self.table.journal.all()} | self.late_sweeps.run_ids()
        runs_dir = self.settings.host.runs_dir
        self._pool.submit(folders.delete_unfinished, runs_dir)
        for part in folders.in_parts(runs_dir, busy):
            for run_id in self.client.deleted_runs(self._runner_id, part):
                if run_id in part:
                    self._pool.submit(folders.delete, runs_dir / run_id)

    def _report(self) -> None:
        for entry in self.table.journal.all():
            if entry.end is None:
                continue
            try:
                self.client.report_end(self._runner_id, entry.attempt_id, entry.end)
            except (TokenRefused, RunnerUnknown):
                raise
            except ServiceRefused as error:
                log.warning("the service refused the end report of %s: %s", entry.attempt_id, error)
            self.table.journal.remove(entry.attempt_id)
            self._due.pop("claim", None)

    @property
    def _runner_id(self) -> str:
        assert self._registered is not None
        return self._registered.runner_id

    def _every(self, name: str, interval_s: float, action: Callable[[], None]) -> None:
        """Call `action` when it is due; an unreachable service makes it due after `RETRY_S`."""
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
            log.warning("the service does not answer; trainers continue: %s", why)
        self._reachable = reachable
