"""The bell: tells the worker that a run may need a look. Losing a ring costs seconds, not a run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from celery import Celery
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError

RECONCILE_TASK = "runs.reconcile"
SOCKET_TIMEOUT_S = 2.0
RING_LIFE_S = 30.0
"""A ring that no worker heard by then is dropped: the sweep has come since."""

TIMEOUTS = {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S}

log = logging.getLogger(__name__)


class Bell(Protocol):
    """Rings for runs."""

    def ring(self, run_ids: Iterable[str]) -> None:
        """Ask for a look at each run, after the commit that changed it; never raises."""

    def check(self) -> None:
        """Raise BrokerAway when a ring would reach nobody."""


class BrokerAway(Exception):
    """The broker does not answer."""


class CeleryBell:
    """Sends the task `runs.reconcile` with the id and nothing else."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._app = Celery("hillclimb-bell", broker=redis_url)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_retry=False,
            broker_transport_options={**TIMEOUTS, "max_retries": 1},
        )

    def ring(self, run_ids: Iterable[str]) -> None:
        """Send one task per run; without a broker the sweep will find the runs."""
        try:
            for run_id in run_ids:
                self._app.send_task(RECONCILE_TASK, args=[run_id], retry=False, expires=RING_LIFE_S)
        except (KombuError, RedisError, OSError) as error:
            log.warning("the bell is out of order, the sweep will come: %s", error)

    def check(self) -> None:
        """Ask the broker for a sign of life; raises BrokerAway."""
        try:
            with Redis.from_url(self._redis_url, **TIMEOUTS) as redis:
                redis.ping()
        except (RedisError, OSError) as error:
            raise BrokerAway(f"the broker does not answer: {error}") from error

    def close(self) -> None:
        """Close the connections to the broker."""
        self._app.close()
