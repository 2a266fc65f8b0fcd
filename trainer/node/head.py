"""The gang's first node: claims the attempt, has every machine checked, and runs the trainer.

Its life: claim → gather the machines into one Ray → check them → start the trainer → watch it →
upload its tail → report its end. One thread does all of it in short steps. An unreachable service
changes nothing for the trainer. Neither does the death of this process: a new one on the same
machine finds the trainer by its mark and the record in the journal, and adopts it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hillclimb.process.exit_report import MESSAGE_LIMIT, attempt_end, last_trainer_seq
from hillclimb.process.identity import TrainerProcess, kill_marked
from hillclimb.process.launcher import Launcher, launch_failure
from hillclimb.process.redactor import Redactor
from hillclimb.process.sweep import Sweeper
from hillclimb.process.tail_upload import TailUploader
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport, NodePlan
from hillclimb.protocol.rundir import AttemptDir
from trainer.node.checks.gang_check import GangCheck
from trainer.node.checks.node_check import NodeReport
from trainer.node.environment import WITHHELD, ray_variables, with_secrets
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.ray_process import RayProcess
from trainer.node.rendezvous import RendezvousServer
from trainer.node.settings import NodeSettings
from trainer.node.state.journal import NodeJournal
from trainer.node.state.orphans import find_trainer
from trainer.node.transport.transport import Transport

log = logging.getLogger(__name__)

TICK_S = 0.2
HEARTBEAT_S = 3.0
RETRY_S = 2.0
RAY_START_S = 300.0
"""Time for Ray to answer on the first machine: it takes seconds, longer on a busy one."""
CHECK_S = 900.0
"""Time for the node check, on top of the time for the machines to join."""
EXIT_REPORTED, EXIT_UNREPORTED, EXIT_OVER = 0, 1, 3


class TransportFactory(Protocol):
    """Creates transports to the service; the second needs variables that come with the claim."""

    def for_claim(self) -> Transport:
        """Return the transport that claims the attempt."""
        ...

    def for_attempt(self, environ: Mapping[str, str]) -> Transport:
        """Return the transport while the trainer runs; `environ` has its token and secrets."""
        ...


@dataclass(slots=True, kw_only=True)
class Head:
    """Runs the attempt on the first machine. `stopping` is set by a signal.

    `attach_log` sends the node's lines to the attempt's log too; `delete_secrets` deletes the
    launch's secrets file, once every machine has read it.
    """

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    journal: NodeJournal
    transports: TransportFactory
    attach_log: Callable[[AttemptDir, Redactor], None]
    delete_secrets: Callable[[], None]
    stopping: bool = False
    _service: Transport | None = None
    _trainer: TrainerProcess | None = None
    _ray: RayProcess | None = None
    _rendezvous: RendezvousServer | None = None
    _variables: dict[str, str] = field(default_factory=dict, repr=False)
    """The trainer's environment, secrets included."""
    _due: float = 0.0
    _is_killing: bool = False
    _is_over: bool = False

    @property
    def attempt_dir(self) -> AttemptDir:
        """The attempt's directory."""
        return AttemptDir(self.settings.host.runs_dir / self.settings.run_id, self.settings.attempt)

    def run(self) -> int:
        """Run the attempt to its end and report it; returns the exit code."""
        if self.journal.record.is_reported:
            log.info("the end of attempt %s is reported already", self.settings.attempt_id)
            return EXIT_REPORTED
        try:
            if not self._adopt():
                self._clean_up()
                plan = self._claim()
                if plan is None:
                    return EXIT_UNREPORTED
                self._start(plan)
            self._watch()
            end = self._finish()
            return EXIT_OVER if self._is_over else self._report(end)
        except AttemptOver as error:
            log.warning("exiting: %s", error)
            return EXIT_OVER
        except Exception as error:  # the task edge: an attempt always ends with a reason
            log.exception("the node failed")
            return self._report(self._fail(error))
        finally:
            self._clean_up()

    def _adopt(self) -> bool:
        """Adopt the trainer of a dead node process; its environment has the attempt's token."""
        if not self.journal.record.launched or self.journal.record.end is not None:
            return False
        orphan = find_trainer(self.settings, self.attempt_dir)
        if orphan is None:
            return False
        self._trainer, self._variables = orphan
        self._ray = RayProcess(settings=self.settings, environ=self._variables)
        self._service = self.transports.for_attempt(self._variables)
        self.attach_log(self.attempt_dir, Redactor.of(self._variables))
        log.info("adopted the trainer, pid %d", self._trainer.record.pid)
        if not self.settings.gang.is_alone:
            # The other machines ran in the earlier job, and its Ray head exited with it.
            log.warning("a gang cannot be adopted: its trainer is asked to checkpoint and exit")
            self.stopping = True
        return True

    def _claim(self) -> NodePlan | None:
        """Claim the attempt, retrying until the deadline. Raises AttemptOver."""
        service = self.transports.for_claim()
        deadline = time.monotonic() + self.settings.claim_s
        while not self.stopping and time.monotonic() < deadline:
            try:
                return service.claim(self.journal.record.nonce)
            except ServiceUnreachable as error:
                log.warning("the attempt is not claimed yet: %s", error)
            self._sleep(RETRY_S)
        reason = "a stop was requested" if self.stopping else "the deadline has passed"
        log.error("exiting without a plan: %s", reason)
        return None

    def _start(self, plan: NodePlan) -> None:
        """Prepare the machines and start the trainer; a failure becomes the attempt's end."""
        own = {"HILLCLIMB_ATTEMPT_TOKEN": plan.attempt_token, "HILLCLIMB_SUPERVISED": "1"}
        self._variables = (
            with_secrets(self.environ, plan.secrets) | ray_variables(self.settings) | own
        )
        self._service = self.transports.for_attempt(self._variables)
        launcher = Launcher(self.settings.host, self._variables, WITHHELD)
        try:
            launcher.prepare(plan)
            self.attach_log(self.attempt_dir, Redactor.of(self._variables))
            if self.journal.record.launched or self.journal.record.end is not None:
                # An earlier process started the trainer, which has exited: only its end is left.
                self._ray = RayProcess(settings=self.settings, environ={})
                return
            end = self._prepare()
            if end is None and self._ray is not None:
                address = {"RAY_ADDRESS": self._ray.address}
                launcher = Launcher(self.settings.host, self._variables | address, WITHHELD)
            if end is None:
                # Before the start: after a crash between the two there may be a trainer to find.
                self.journal.update(launched=True)
                self._trainer = launcher.start(plan, self.attempt_dir)
                log.info("started the trainer, pid %d", self._trainer.record.pid)
        except OSError as error:
            log.warning("the trainer cannot start: %s", error)
            end = launch_failure(error, self.attempt_dir.path, holder="node")
        if end is not None:
            self.journal.update(end=end)

    def _prepare(self) -> EndReport | None:
        """Gather and check the machines; returns the end of an attempt that cannot start."""
        variables = {k: v for k, v in self._variables.items() if k != "HILLCLIMB_ATTEMPT_TOKEN"}
        ray = RayProcess(settings=self.settings, environ=variables)
        gang = self.settings.gang
        if not gang.is_alone:
            self._rendezvous = RendezvousServer(
                settings=self.settings,
                nonce=self.journal.record.nonce,
                on_complete=self.delete_secrets,
            )
            try:
                self._rendezvous.open()
            except OSError as error:
                return self._unfit(f"port {self.settings.rendezvous_port}: {error}")
            if ray.is_head_up():
                # Ray itself would say so only after half a minute of waiting for the other process.
                return self._unfit(f"another process listens at {ray.address}, Ray's port here")
            self._ray = ray
            ray.start()
            self._wait_until(lambda: ray.is_head_up() or not ray.is_running(), RAY_START_S)
            if not ray.is_head_up():
                return self._unfit(f"Ray did not start on the first machine:\n{ray.log_tail}")
            log.info("Ray answers at %s; waiting for %d machines", ray.address, len(gang.ips))
        check = GangCheck(settings=self.settings, address=ray.address, environ=variables)
        check.start()
        self._wait_until(
            lambda: check.is_finished() or self._ray_ended(), self.settings.gather_s + CHECK_S
        )
        check.kill()
        self._close_rendezvous()
        if self._ray_ended():
            return self._unfit(f"Ray ended on the first machine:\n{ray.log_tail}")
        result = check.result()
        return self._unfit(result) if isinstance(result, str) else self._judge(result)

    def _ray_ended(self) -> bool:
        """True where this machine's Ray has exited; another Ray may answer at its address."""
        return self._ray is not None and not self._ray.is_running()

    def _judge(self, reports: tuple[NodeReport, ...]) -> EndReport | None:
        """Return the end of an attempt with a faulty machine; None where all are fit."""
        faults = []
        for node in reports:
            log.info("%s (%s): %s", node.ip, node.hostname, "; ".join(node.remarks) or "fit")
            faults += [f"{node.ip} ({node.hostname}): {sentence}" for sentence in node.unfit]
        return self._unfit("\n".join(faults)) if faults or self.stopping else None

    def _unfit(self, why: str) -> EndReport:
        """Return the end of an attempt whose trainer was never started."""
        if self.stopping or self._is_killing or self._is_over:
            reason, why = ReasonCode.RUNNER_STOPPED, "the node was stopped before training started"
        else:
            reason = ReasonCode.NODE_UNFIT
            log.error("the machines are not fit: %s", why)
        message = Redactor.of(self._variables).text(why)[:MESSAGE_LIMIT]
        return EndReport(reason=reason, message=message, last_trainer_seq=0)

    def _watch(self) -> None:
        """Watch the trainer until it exits, and execute stop and kill requests."""
        kill_at = float("inf")
        while self._trainer is not None and self._trainer.running():
            if self._is_killing:
                self._trainer.kill()
            elif self.stopping and kill_at == float("inf"):
                kill_at = time.monotonic() + self.settings.stop_timeout_s
                self._stop(self._trainer)
            elif time.monotonic() > kill_at:
                log.warning("the trainer did not exit in time")
                self._is_killing = True
            self._heartbeat(is_preparing=False)
            time.sleep(TICK_S)

    def _stop(self, trainer: TrainerProcess) -> None:
        """Ask the trainer, once, to checkpoint and exit: a second SIGTERM would kill it."""
        if not self.journal.record.stop_sent:
            log.info("asking the trainer to stop")
            self.journal.update(stop_sent=True)
            trainer.terminate()

    def _heartbeat(self, *, is_preparing: bool) -> None:
        """Send a heartbeat when one is due, and take over the requested action."""
        now = time.monotonic()
        if now < self._due or self._service is None:
            return
        self._due = now + HEARTBEAT_S
        try:
            action = self._service.heartbeat(is_preparing=is_preparing)
        except ServiceUnreachable as error:
            log.debug("the heartbeat was not received: %s", error)
            return
        except AttemptOver as error:
            log.warning("the attempt is over: %s", error)
            self._is_over = self._is_killing = True
            return
        except Exception:  # the heartbeat's edge: a broken transport is not the trainer's fault
            log.exception("the heartbeat failed")
            return
        self._is_killing = self._is_killing or action == "kill"
        self.stopping = self.stopping or action == "stop"

    def _finish(self) -> EndReport:
        """Upload and sweep what the trainer left, then record and return its end."""
        if self.journal.record.end is not None:
            return self.journal.record.end
        redactor = Redactor.of(self._variables)
        self._recover_tail(redactor)
        code = self._trainer.exit_code if self._trainer is not None else None
        is_stopped = self.journal.record.stop_sent or self._is_killing
        end = attempt_end(self.attempt_dir, code, stop_requested=is_stopped, redactor=redactor)
        self.journal.update(end=end)
        return end

    def _recover_tail(self, redactor: Redactor) -> None:
        """Upload the trainer's tail, kill its other processes, and delete its instances."""
        TailUploader.at(self.settings.blobs_url, redactor).upload_tail(
            self.settings.run_id, self.attempt_dir
        )
        self._clean_up()
        Sweeper(self.settings.host, self._variables, WITHHELD).sweep(self.attempt_dir)

    def _report(self, end: EndReport) -> int:
        """Report the end, retrying until the deadline; returns the exit code."""
        log.info("the attempt ended: %s, %s", end.reason, end.message)
        service, deadline = self._service, time.monotonic() + self.settings.report_s
        while service is not None and time.monotonic() < deadline:
            try:
                service.report_end(end)
            except ServiceUnreachable as error:
                log.warning("the end is not reported yet: %s", error)
                time.sleep(RETRY_S)
                continue
            except AttemptOver as error:
                log.warning("the service refused the end report: %s", error)
                return EXIT_OVER
            self.journal.update(is_reported=True)
            return EXIT_REPORTED
        log.error("the end of the attempt could not be reported")
        return EXIT_UNREPORTED

    def _fail(self, error: Exception) -> EndReport:
        """Return the end of an attempt whose node raised an unexpected error.

        The trainer may checkpoint as at any stop, and its tail and instances are handled as usual.
        """
        redactor = Redactor.of(self._variables)
        try:
            self._stop_gracefully()
            self._recover_tail(redactor)
        except Exception:  # the edge of an edge: the end must be reported
            log.exception("the trainer's tail was not recovered")
        message = redactor.text(f"the node failed: {type(error).__name__}: {error}")[:MESSAGE_LIMIT]
        seq = last_trainer_seq(self.attempt_dir.events)
        return EndReport(reason=ReasonCode.INTERNAL, message=message, last_trainer_seq=seq)

    def _stop_gracefully(self) -> None:
        """Ask the trainer to checkpoint and exit, wait for it, then kill its group."""
        trainer, deadline = self._trainer, time.monotonic() + self.settings.stop_timeout_s
        if trainer is None:
            return
        self._stop(trainer)
        while trainer.running() and not self._is_killing and time.monotonic() < deadline:
            self._heartbeat(is_preparing=False)
            time.sleep(TICK_S)
        trainer.kill()

    def _wait_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until `done`, a deadline or a stop, while sending heartbeats and answering calls."""
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if self.stopping or self._is_killing:
                return
            self._heartbeat(is_preparing=True)
            if self._rendezvous is not None:
                self._rendezvous.poll()
            time.sleep(TICK_S)

    def _close_rendezvous(self) -> None:
        """Close the rendezvous: every machine has joined."""
        rendezvous, self._rendezvous = self._rendezvous, None
        if rendezvous is not None:
            rendezvous.close()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < deadline:
            time.sleep(TICK_S)

    def _clean_up(self) -> None:
        """Stop what is left of this attempt here: Ray, and the processes of a dead trainer."""
        self._close_rendezvous()
        ray, self._ray = self._ray, None
        if ray is not None:
            ray.stop()
        kill_marked(self.settings.own_dir, self.settings.attempt_id)
        if ray is not None:
            ray.delete_files()
