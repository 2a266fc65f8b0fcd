"""The task queue: enqueues runs for the worker. A lost task costs seconds, not a run."""

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
MESSAGE_TTL_S = 30.0
"""A task that no worker took for this long expires: the sweep checks its run anyway."""

TIMEOUTS = {"socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": SOCKET_TIMEOUT_S}

log = logging.getLogger(__name__)


class TaskQueue(Protocol):
    """A queue of runs to check."""

    def enqueue(self, run_ids: Iterable[str]) -> None:
        """Enqueue each run, after the commit that changed it; never raises."""

    def check(self) -> None:
        """Raise BrokerUnreachable when no task can be enqueued."""


class BrokerUnreachable(Exception):
    """The broker does not respond."""


class CeleryTaskQueue:
    """Sends the task `runs.reconcile` with a run's id as its only argument."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._app = Celery("hillclimb-api", broker=redis_url)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_retry=False,
            broker_transport_options={**TIMEOUTS, "max_retries": 1},
        )

    def enqueue(self, run_ids: Iterable[str]) -> None:
        """Send one task per run; without a broker the sweep finds the runs later."""
        try:
            for run_id in run_ids:
                self._app.send_task(
                    RECONCILE_TASK, args=[run_id], retry=False, expires=MESSAGE_TTL_S
                )
        except (KombuError, RedisError, OSError) as error:
            log.warning("runs cannot be enqueued, the sweep will find them: %s", error)

    def check(self) -> None:
        """Ping the broker; raises BrokerUnreachable."""
        try:
            with Redis.from_url(self._redis_url, **TIMEOUTS) as redis:
                redis.ping()
        except (RedisError, OSError) as error:
            raise BrokerUnreachable(f"the broker does not respond: {error}") from error

    def close(self) -> None:
        """Close the connections to the broker."""
        self._app.close()
