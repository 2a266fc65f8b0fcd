"""The gang's first node: it takes the attempt, has every machine tested, and holds the trainer.

One thread in short steps. Losing the service changes nothing for the trainer; losing this process
does not either: another one on the same machine finds what is left by its mark and goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainer.contract.launch import AttemptEnd, NodePlan
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import AttemptDir
from trainer.handover.ending import MESSAGE_LIMIT, attempt_end, last_trainer_seq
from trainer.handover.launch import Launcher, launch_failure
from trainer.handover.masking import Mask
from trainer.handover.mirror import TailMirror
from trainer.handover.processes import TrainerProcess, kill_marked
from trainer.handover.sweep import Sweeper
from trainer.node.environment import WITHHELD, of_ray, with_secrets
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.fitness import Inspection
from trainer.node.journal import NodeJournal
from trainer.node.leftover import find_trainer
from trainer.node.raychild import RayChild
from trainer.node.rollcall import Rollcall
from trainer.node.service import Service
from trainer.node.settings import NodeSettings
from trainer.node.survey import Survey

log = logging.getLogger(__name__)

TICK_S = 0.2
HEARTBEAT_S = 3.0
RETRY_S = 2.0
RAY_S = 300.0
"""Until Ray answers on the first machine itself: seconds, unless that is busy."""
SURVEY_S = 900.0
"""Beyond the time the machines wait for each other."""
EXIT_TOLD, EXIT_UNHEARD, EXIT_OVER = 0, 1, 3


class Ways(Protocol):
    """Makes what speaks to the service, once it is known with which variables."""

    def first(self) -> Service:
        """What the plan is asked of."""
        ...

    def later(self, environ: Mapping[str, str]) -> Service:
        """What is spoken to while the trainer runs; `environ` has its token and secrets."""
        ...


@dataclass(slots=True, kw_only=True)
class Head:
    """`stopping` is set by a signal; `show` is given the log that the node's lines go to.

    `forget` deletes what the launch brought, once every machine has read it.
    """

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    journal: NodeJournal
    ways: Ways
    show: Callable[[AttemptDir, Mask], None]
    forget: Callable[[], None]
    stopping: bool = False
    _service: Service | None = None
    _trainer: TrainerProcess | None = None
    _ray: RayChild | None = None
    _rollcall: Rollcall | None = None
    _variables: dict[str, str] = field(default_factory=dict, repr=False)
    """The trainer's, with everything secret."""
    _due: float = 0.0
    _is_killing: bool = False
    _is_over: bool = False

    @property
    def where(self) -> AttemptDir:
        """The attempt's files."""
        return AttemptDir(
            self.settings.place.runs_dir / self.settings.run_id, self.settings.attempt
        )

    def run(self) -> int:
        """Carry the attempt to its end and report it; returns the exit code."""
        if self.journal.notes.is_told:
            log.info("the end of attempt %s is told already", self.settings.attempt_id)
            return EXIT_TOLD
        try:
            if not self._adopt():
                self._clear()
                plan = self._exchange()
                if plan is None:
                    return EXIT_UNHEARD
                self._begin(plan)
            self._watch()
            end = self._conclude()
            return EXIT_OVER if self._is_over else self._tell(end)
        except AttemptOver as error:
            log.warning("leaving: %s", error)
            return EXIT_OVER
        except Exception as error:  # the task edge: an attempt always ends for a reason
            log.exception("the node failed")
            return self._tell(self._failed(error))
        finally:
            self._clear()

    def _adopt(self) -> bool:
        """Take over the trainer of a node process that died; its environment has the token."""
        if not self.journal.notes.launched or self.journal.notes.end is not None:
            return False
        found = find_trainer(self.settings, self.where)
        if found is None:
            return False
        self._trainer, self._variables = found
        self._ray = RayChild(settings=self.settings, environ=self._variables)
        self._service = self.ways.later(self._variables)
        self.show(self.where, Mask.of(self._variables))
        log.info("adopted the trainer, pid %d", self._trainer.record.pid)
        if not self.settings.gang.is_alone:
            # Its other machines belong to the job before, and nobody holds its Ray any more.
            log.warning(
                "a gang is not gathered twice: its trainer is asked to checkpoint and leave"
            )
            self.stopping = True
        return True

    def _exchange(self) -> NodePlan | None:
        """Take the attempt, trying until the deadline. Raises AttemptOver."""
        service = self.ways.first()
        deadline = time.monotonic() + self.settings.exchange_s
        while not self.stopping and time.monotonic() < deadline:
            try:
                return service.exchange(self.journal.notes.nonce)
            except ServiceUnreachable as error:
                log.warning("there is no plan yet: %s", error)
            self._sleep(RETRY_S)
        log.error("leaving without a plan: %s", "asked to stop" if self.stopping else "too late")
        return None

    def _begin(self, plan: NodePlan) -> None:
        """Prepare the machines and start the trainer; what fails becomes the attempt's end."""
        own = {"HILLCLIMB_ATTEMPT_TOKEN": plan.attempt_token, "HILLCLIMB_HELD": "1"}
        self._variables = with_secrets(self.environ, plan.secrets) | of_ray(self.settings) | own
        self._service = self.ways.later(self._variables)
        launcher = Launcher(self.settings.place, self._variables, WITHHELD)
        try:
            launcher.prepare(plan)
            self.show(self.where, Mask.of(self._variables))
            if self.journal.notes.launched or self.journal.notes.end is not None:
                self._ray = RayChild(settings=self.settings, environ={})
                return
            end = self._prepare()
            if end is None and self._ray is not None:
                ours = {"RAY_ADDRESS": self._ray.address}
                launcher = Launcher(self.settings.place, self._variables | ours, WITHHELD)
            if end is None:
                self.journal.note(launched=True)
                self._trainer = launcher.start(plan, self.where)
                log.info("started the trainer, pid %d", self._trainer.record.pid)
        except OSError as error:
            log.warning("the trainer cannot start: %s", error)
            end = launch_failure(error, self.where.path, holder="node")
        if end is not None:
            self.journal.note(end=end)

    def _prepare(self) -> AttemptEnd | None:
        """Gather the machines and test them; returns the end of an attempt that cannot begin."""
        variables = {k: v for k, v in self._variables.items() if k != "HILLCLIMB_ATTEMPT_TOKEN"}
        ray = RayChild(settings=self.settings, environ=variables)
        gang = self.settings.gang
        if not gang.is_alone:
            self._rollcall = Rollcall(
                settings=self.settings, nonce=self.journal.notes.nonce, on_complete=self.forget
            )
            try:
                self._rollcall.open()
            except OSError as error:
                return self._unprepared(f"port {self.settings.rollcall_port}: {error}")
            self._ray = ray
            ray.start()
            self._until(lambda: ray.answers() or not ray.is_running(), RAY_S)
            if not ray.answers():
                return self._unprepared(f"Ray did not start on the first machine:\n{ray.said}")
            log.info("Ray answers at %s: waiting for %d machines", ray.address, len(gang.ips))
        survey = Survey(settings=self.settings, address=ray.address, environ=variables)
        survey.start()
        self._until(
            lambda: survey.is_over() or self._ray_ended(), self.settings.gather_s + SURVEY_S
        )
        survey.kill()
        self._hang_up()
        if self._ray_ended():
            return self._unprepared(f"Ray ended on the first machine:\n{ray.said}")
        found = survey.found()
        return self._unprepared(found) if isinstance(found, str) else self._judge(found)

    def _ray_ended(self) -> bool:
        """Whether this machine's Ray is gone; another one may answer at its address."""
        return self._ray is not None and not self._ray.is_running()

    def _judge(self, found: tuple[Inspection, ...]) -> AttemptEnd | None:
        wrong = []
        for each in found:
            log.info("%s (%s): %s", each.ip, each.hostname, "; ".join(each.remarks) or "fit")
            wrong += [f"{each.ip} ({each.hostname}): {sentence}" for sentence in each.unfit]
        return self._unprepared("\n".join(wrong)) if wrong or self.stopping else None

    def _unprepared(self, why: str) -> AttemptEnd:
        """The end of an attempt whose trainer was never started."""
        if self.stopping or self._is_killing or self._is_over:
            reason, why = ReasonCode.RUNNER_STOPPED, "the node was asked to stop before it trained"
        else:
            reason = ReasonCode.NODE_UNFIT
            log.error("the machines are not fit: %s", why)
        message = Mask.of(self._variables).text(why)[:MESSAGE_LIMIT]
        return AttemptEnd(reason=reason, message=message, last_trainer_seq=0)

    def _watch(self) -> None:
        """Keep the trainer until it is gone, and carry out what the service wants."""
        late = float("inf")
        while self._trainer is not None and self._trainer.running():
            if self._is_killing:
                self._trainer.kill()
            elif self.stopping and late == float("inf"):
                late = time.monotonic() + self.settings.stop_timeout_s
                self._stop(self._trainer)
            elif time.monotonic() > late:
                log.warning("the trainer did not leave in time")
                self._is_killing = True
            self._beat(is_preparing=False)
            time.sleep(TICK_S)

    def _stop(self, trainer: TrainerProcess) -> None:
        """Ask the trainer, once, to checkpoint and leave."""
        if not self.journal.notes.stop_sent:
            log.info("asking the trainer to stop")
            self.journal.note(stop_sent=True)
            trainer.terminate()

    def _beat(self, *, is_preparing: bool) -> None:
        """Say that we live, when it is time, and hear what is wanted."""
        now = time.monotonic()
        if now < self._due or self._service is None:
            return
        self._due = now + HEARTBEAT_S
        try:
            action = self._service.heartbeat(is_preparing=is_preparing)
        except ServiceUnreachable as error:
            log.debug("nobody hears us: %s", error)
            return
        except AttemptOver as error:
            log.warning("the attempt is over: %s", error)
            self._is_over = self._is_killing = True
            return
        except Exception:  # the beat's edge: the trainer is healthy whatever is wrong with its way
            log.exception("this beat failed")
            return
        self._is_killing = self._is_killing or action == "kill"
        self.stopping = self.stopping or action == "stop"

    def _conclude(self) -> AttemptEnd:
        """Say how the trainer ended, once everything of it is mirrored and swept."""
        if self.journal.notes.end is not None:
            return self.journal.notes.end
        mask = Mask.of(self._variables)
        self._bring_home(mask)
        code = self._trainer.exit_code if self._trainer is not None else None
        asked = self.journal.notes.stop_sent or self._is_killing
        end = attempt_end(self.where, code, asked_to_stop=asked, mask=mask)
        self.journal.note(end=end)
        return end

    def _bring_home(self, mask: Mask) -> None:
        """Mirror what the trainer wrote, end what is left of it, and what it holds elsewhere."""
        TailMirror.at(self.settings.blobs_url, mask).complete(self.settings.run_id, self.where)
        self._clear()
        Sweeper(self.settings.place, self._variables, WITHHELD).sweep(self.where)

    def _tell(self, end: AttemptEnd) -> int:
        """Report the end until somebody has it, or the deadline."""
        log.info("the attempt ended: %s, %s", end.reason, end.message)
        service, deadline = self._service, time.monotonic() + self.settings.report_s
        while service is not None and time.monotonic() < deadline:
            try:
                service.report_end(end)
            except ServiceUnreachable as error:
                log.warning("the end is not told yet: %s", error)
                time.sleep(RETRY_S)
                continue
            except AttemptOver as error:
                log.warning("the service does not want the end: %s", error)
                return EXIT_OVER
            self.journal.note(is_told=True)
            return EXIT_TOLD
        log.error("nobody has heard how the attempt ended")
        return EXIT_UNHEARD

    def _failed(self, error: Exception) -> AttemptEnd:
        """The end of an attempt whose node made a mistake.

        The trainer may checkpoint as at any stop; what it wrote and holds is looked after as ever.
        """
        mask = Mask.of(self._variables)
        try:
            self._let_leave()
            self._bring_home(mask)
        except Exception:  # the edge of an edge: the end must be told
            log.exception("what the trainer left is not brought home")
        message = mask.text(f"the node failed: {type(error).__name__}: {error}")[:MESSAGE_LIMIT]
        seq = last_trainer_seq(self.where.events)
        return AttemptEnd(reason=ReasonCode.INTERNAL, message=message, last_trainer_seq=seq)

    def _let_leave(self) -> None:
        """Ask the trainer to checkpoint and leave, and wait for as long as it may."""
        trainer, deadline = self._trainer, time.monotonic() + self.settings.stop_timeout_s
        if trainer is None:
            return
        self._stop(trainer)
        while trainer.running() and not self._is_killing and time.monotonic() < deadline:
            self._beat(is_preparing=False)
            time.sleep(TICK_S)
        trainer.kill()

    def _until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait, alive to the service, until it is done, too late, or not wanted any more."""
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if self.stopping or self._is_killing:
                return
            self._beat(is_preparing=True)
            if self._rollcall is not None:
                self._rollcall.poll()
            time.sleep(TICK_S)

    def _hang_up(self) -> None:
        """Answer no machine any more: whoever is there has joined."""
        rollcall, self._rollcall = self._rollcall, None
        if rollcall is not None:
            rollcall.close()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < deadline:
            time.sleep(TICK_S)

    def _clear(self) -> None:
        """End what is left of this attempt here: Ray, and whatever a dead trainer started."""
        self._hang_up()
        ray, self._ray = self._ray, None
        if ray is not None:
            ray.end()
        kill_marked(self.settings.own_dir, self.settings.attempt_id)
        if ray is not None:
            ray.remove()
