"""The gang's other nodes: they join the first one's Ray, and leave when it is gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainer.handover.masking import Mask
from trainer.handover.processes import kill_marked
from trainer.node.environment import with_secrets
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.journal import is_of
from trainer.node.raychild import RayChild
from trainer.node.rollcall import call
from trainer.node.service import Service
from trainer.node.settings import NodeSettings

log = logging.getLogger(__name__)

TICK_S = 0.5
LOOK_S = 3.0
GONE_S = 120.0
"""A head that answers nothing for so long is gone: shorter gaps in the network NCCL waits out. One
that refuses connections is gone at once, and so is one whose Ray has given up this machine."""
EXIT_DONE, EXIT_FAILED, EXIT_OVER = 0, 1, 3


@dataclass(slots=True, kw_only=True)
class Member:
    """`stopping` is set by a signal: the trainer's processes here stay until the head has left.

    `key` is this process's own; `know` is given what else the log must not show; `forget` deletes
    what the launch brought.
    """

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    key: bytes = field(repr=False)
    service: Service | None
    """None: the secrets are in the environment."""
    know: Callable[[Mask], None]
    forget: Callable[[], None]
    stopping: bool = False
    _late: float = float("inf")

    def run(self) -> int:
        """Join, stay and leave; returns the exit code."""
        deadline = time.monotonic() + self.settings.gather_s
        kill_marked(self.settings.own_dir, self.settings.attempt_id)
        ray = None
        try:
            secrets = self._secrets(deadline)
            variables = with_secrets(self.environ, secrets)
            self.know(Mask.of(variables))
            ray = RayChild(settings=self.settings, environ=variables)
            return self._join(ray, time.monotonic() + self.settings.gather_s)
        except AttemptOver as error:
            log.warning("leaving: %s", error)
            return EXIT_OVER
        except ServiceUnreachable as error:
            log.error("leaving without the operator's secrets: %s", error)  # noqa: TRY400
            return EXIT_FAILED
        finally:
            if ray is not None:
                ray.end()
            kill_marked(self.settings.own_dir, self.settings.attempt_id)
            if ray is not None:
                ray.remove()

    def _secrets(self, deadline: float) -> Mapping[str, str]:
        """Ask for what is secret: whose job it is the first node says, once it has the attempt.

        Raises:
            AttemptOver: another job carries the attempt.
            ServiceUnreachable: too late, or asked to stop.
        """
        nonce = ""
        while True:
            try:
                if not nonce:
                    nonce = call(self.settings, self.key)
                    if not is_of(self.settings.dir_of(0), nonce):
                        self.forget()  # where machines share their home the first one does it
                return self.service.exchange(nonce).secrets if self.service else {}
            except ServiceUnreachable as error:
                if self.stopping or time.monotonic() > deadline:
                    raise
                log.info("waiting: %s", error)
            time.sleep(LOOK_S)

    def _join(self, ray: RayChild, deadline: float) -> int:
        while not ray.answers():
            if self.stopping or time.monotonic() > deadline:
                log.error("no Ray at %s within %g s", ray.address, self.settings.gather_s)
                return EXIT_FAILED
            time.sleep(TICK_S)
        ray.start()
        log.info("joining Ray at %s", ray.address)
        heard = time.monotonic()
        while time.monotonic() - heard < GONE_S and not self._is_late():
            if ray.answers():
                heard = time.monotonic()
            elif ray.refuses():
                break
            if not ray.is_running():
                is_gone = not ray.answers()
                log.log(logging.INFO if is_gone else logging.ERROR, "Ray ended here:\n%s", ray.said)
                return EXIT_DONE if is_gone else EXIT_FAILED
            time.sleep(LOOK_S)
        log.info("the first node is gone: leaving")
        return EXIT_DONE

    def _is_late(self) -> bool:
        """Whether a stop was asked for, and the first node has had its time."""
        if self.stopping and self._late == float("inf"):
            log.info("asked to stop: waiting until the first node has left")
            self._late = time.monotonic() + self.settings.stop_timeout_s
        return time.monotonic() > self._late
