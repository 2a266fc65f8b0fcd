"""Notices that a server has lost a session, as one does that is started again.

The SDK sends heartbeats and ignores their answers, and sampling goes on by itself on a restarted
server, so that a run would draw a whole step's rollouts before its gradient meets no model.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import httpx
import tinker

from trainer.errors import LearnerError
from trainer.workers.tinker.calls import status_of

PERIOD_S = 10.0
"""Time between two heartbeats (seconds), as the SDK has it."""
_LOST = frozenset({404, 410})
_log = logging.getLogger(__name__)


class SessionWatch:
    """Sends heartbeats from a thread of its own and reads their answers."""

    def __init__(self, send: Callable[[], None]) -> None:
        """`send` sends one heartbeat and raises the SDK's error for a refusal."""
        self._send = send
        self._stopped = threading.Event()
        self._lost: Exception | None = None

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="tinker-watch", daemon=True).start()

    def stop(self) -> None:
        """Send no more heartbeats; one that is under way is not waited for."""
        self._stopped.set()

    def check(self) -> None:
        """Do nothing while the session is not known to be lost.

        Raises:
            LearnerError: it is.
        """
        if self._lost is not None:
            raise LearnerError(
                "the Tinker server no longer knows this session: it was started again, or heard"
                " nothing for too long; the model in training is lost"
            ) from self._lost

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            try:
                self._send()
            except (tinker.TinkerError, httpx.HTTPError, TimeoutError, RuntimeError) as fault:
                # A server that does not answer may come back with the session.
                if status_of(fault) in _LOST:
                    self._lost = fault
                    _log.warning("the Tinker server no longer knows this session")
                    return
