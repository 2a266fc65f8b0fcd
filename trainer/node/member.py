"""The gang's other nodes: they join the first one's Ray, and exit after it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hillclimb.process.identity import kill_marked
from hillclimb.process.redactor import Redactor
from trainer.node.environment import with_secrets
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.ray_process import RayProcess
from trainer.node.rendezvous import request_nonce
from trainer.node.settings import NodeSettings
from trainer.node.state.journal import belongs_to_job
from trainer.node.transport.transport import Transport

log = logging.getLogger(__name__)

TICK_S = 0.5
POLL_S = 3.0
HEAD_TIMEOUT_S = 120.0
"""A head that is silent for this long has exited; NCCL survives shorter gaps in the network. A head
that refuses connections has exited already, and so has one whose Ray dropped this machine."""
EXIT_DONE, EXIT_FAILED, EXIT_OVER = 0, 1, 3


@dataclass(slots=True, kw_only=True)
class Member:
    """Runs a member. `stopping` is set by a signal: its processes stay until the head has exited.

    `key` is this process's own; `set_redactor` gets the redactor of all secrets; `delete_secrets`
    deletes the launch's secrets file.
    """

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    key: bytes = field(repr=False)
    service: Transport | None
    """None: the secrets are in the environment."""
    set_redactor: Callable[[Redactor], None]
    delete_secrets: Callable[[], None]
    stopping: bool = False
    _late: float = float("inf")

    def run(self) -> int:
        """Join the head's Ray until it exits; returns the exit code."""
        deadline = time.monotonic() + self.settings.gather_s
        kill_marked(self.settings.own_dir, self.settings.attempt_id)
        ray = None
        try:
            secrets = self._secrets(deadline)
            variables = with_secrets(self.environ, secrets)
            self.set_redactor(Redactor.of(variables))
            ray = RayProcess(settings=self.settings, environ=variables)
            return self._join(ray, time.monotonic() + self.settings.gather_s)
        except AttemptOver as error:
            log.warning("exiting: %s", error)
            return EXIT_OVER
        except ServiceUnreachable as error:
            log.error("exiting without the operator's secrets: %s", error)  # noqa: TRY400
            return EXIT_FAILED
        finally:
            if ray is not None:
                ray.stop()
            kill_marked(self.settings.own_dir, self.settings.attempt_id)
            if ray is not None:
                ray.delete_files()

    def _secrets(self, deadline: float) -> Mapping[str, str]:
        """Fetch the operator's secrets, with the job's nonce from the first node's rendezvous.

        Raises:
            AttemptOver: another job has the attempt.
            ServiceUnreachable: the deadline has passed, or a stop was requested.
        """
        nonce = ""
        while True:
            try:
                if not nonce:
                    nonce = request_nonce(self.settings, self.key)
                    if not belongs_to_job(self.settings.dir_of(0), nonce):
                        self.delete_secrets()  # on a shared home the first machine does it
                return self.service.claim(nonce).secrets if self.service else {}
            except ServiceUnreachable as error:
                if self.stopping or time.monotonic() > deadline:
                    raise
                log.info("waiting: %s", error)
            time.sleep(POLL_S)

    def _join(self, ray: RayProcess, deadline: float) -> int:
        while not ray.is_head_up():
            if self.stopping or time.monotonic() > deadline:
                log.error("no Ray answers at %s within %g s", ray.address, self.settings.gather_s)
                return EXIT_FAILED
            time.sleep(TICK_S)
        ray.start()
        log.info("joining Ray at %s", ray.address)
        answered_at = time.monotonic()
        while time.monotonic() - answered_at < HEAD_TIMEOUT_S and not self._is_late():
            if ray.is_head_up():
                answered_at = time.monotonic()
            elif ray.is_head_refusing():
                break
            if not ray.is_running():
                has_head_exited = not ray.is_head_up()
                log.log(
                    logging.INFO if has_head_exited else logging.ERROR,
                    "Ray ended here:\n%s",
                    ray.log_tail,
                )
                return EXIT_DONE if has_head_exited else EXIT_FAILED
            time.sleep(POLL_S)
        log.info("the first node has exited: exiting")
        return EXIT_DONE

    def _is_late(self) -> bool:
        """True once a stop was requested and the first node's time to exit has passed."""
        if self.stopping and self._late == float("inf"):
            log.info("stop requested: waiting until the first node has exited")
            self._late = time.monotonic() + self.settings.stop_timeout_s
        return time.monotonic() > self._late
