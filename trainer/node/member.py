"""The gang's other nodes: they join the first one's Ray, and leave when it is gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.handover.processes import kill_marked
from trainer.node.environment import with_secrets
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.raychild import RayChild
from trainer.node.service import Service
from trainer.node.settings import NodeSettings

log = logging.getLogger(__name__)

TICK_S = 0.5
LOOK_S = 3.0
GONE_S = 20.0
"""A head that answers nothing for so long is gone; one that refuses connections is at once."""
EXIT_DONE, EXIT_FAILED, EXIT_OVER = 0, 1, 3


@dataclass(slots=True, kw_only=True)
class Member:
    """`stopping` is set by a signal: the trainer's processes here stay until the head has left."""

    settings: NodeSettings
    environ: Mapping[str, str] = field(repr=False)
    nonce: str
    service: Service | None
    """None: the secrets are in the environment."""
    stopping: bool = False
    _late: float = float("inf")

    def run(self) -> int:
        """Join, stay and leave; returns the exit code."""
        deadline = time.monotonic() + self.settings.gather_s
        kill_marked(self.settings.own_dir, self.settings.attempt_id)
        ray = None
        try:
            secrets = self._secrets(deadline)
            ray = RayChild(settings=self.settings, environ=with_secrets(self.environ, secrets))
            return self._join(ray, deadline)
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
        """Ask for what is secret, until the first node has the attempt.

        Raises:
            AttemptOver: another job carries the attempt.
            ServiceUnreachable: too late, or asked to stop.
        """
        while self.service is not None:
            try:
                return self.service.exchange(self.nonce).secrets
            except ServiceUnreachable as error:
                if self.stopping or time.monotonic() > deadline:
                    raise
                log.info("waiting: %s", error)
            time.sleep(LOOK_S)
        return {}

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
