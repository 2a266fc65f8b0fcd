"""The Celery application: a bell and a clock. What is to be done is in the database.

Tasks are short, carry ids only, and may be lost, repeated or run twice at once; so late
acknowledgement is safe, results are of no interest, and what the clock sends expires before it
sends the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ParamSpec

from celery import Celery, signals

from api.settings import load_settings

P = ParamSpec("P")

SWEEP = "runs.sweep"
RELAY = "relay.sweep"
DELIVER = "outbox.deliver"
REAP = "reaper.sweep"
SWEEP_DATASETS = "datasets.sweep"
EXCLUDE = "validations.exclude"
CLUSTER = "clusters.reconcile"
SWEEP_CLUSTERS = "clusters.sweep"
OBSERVE = "clusters.observe"
PRICE = "clusters.price"
MAILBOX = "nodes.mailbox"
SPEND = "budgets.watch"

EVERY_S = {
    SWEEP: 2.0,
    SWEEP_CLUSTERS: 2.0,
    DELIVER: 2.0,
    RELAY: 5.0,
    MAILBOX: 5.0,
    EXCLUDE: 5.0,
    OBSERVE: 15.0,
    SPEND: 15.0,
    REAP: 30.0,
    SWEEP_DATASETS: 900.0,
}
"""The clock's period of each sweep."""

ASK_CLOUDS = (CLUSTER, OBSERVE, PRICE)

CLUSTERS_QUEUE = "clusters"
"""Asking clouds takes tens of seconds: tasks that do have a queue of their own, and workers that
take nothing else (`celery worker -Q clusters`), so that no run waits behind them."""

BEHIND_THE_CLOCK = 6
"""Priority of what a round sends for (0 goes first): a thousand of them must not keep the clock's
next tasks waiting until they expire."""

VISIBILITY_TIMEOUT_S = 300
"""After this an unacknowledged task of a dead worker is sent again; no task takes as long. What a
lost task was to do does not wait for it: the clock's next sweep finds it due."""
TASK_LIMIT_S = 50
CLOUD_TASK_LIMIT_S = 240


def configuration() -> dict[str, Any]:
    """Celery's settings, read when the first process needs them."""
    settings = load_settings()
    # Where nobody rents clusters nobody reads their queue: what is sent there would stay.
    on_clock = [name for name in EVERY_S if settings.clouds or name not in ASK_CLOUDS]
    return {
        "broker_url": settings.redis_url,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {"visibility_timeout": VISIBILITY_TIMEOUT_S},
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "task_ignore_result": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_time_limit": TASK_LIMIT_S,
        "task_annotations": {name: {"time_limit": CLOUD_TASK_LIMIT_S} for name in ASK_CLOUDS},
        "task_routes": {name: {"queue": CLUSTERS_QUEUE} for name in ASK_CLOUDS},
        "timezone": "UTC",
        "worker_send_task_events": False,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "beat_schedule": {
            name: {"task": name, "schedule": EVERY_S[name], "options": {"expires": EVERY_S[name]}}
            for name in on_clock
        },
    }


app = Celery("hillclimb", include=["worker.tasks"])
app.add_defaults(configuration)

NOISY_LOGGERS = ("celery.worker.strategy", "celery.app.trace")
"""They say two lines per task at INFO: four a second, for ever; failures are errors."""


def quieten(**_: object) -> None:
    """Keep the worker's log for what is worth reading."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


signals.after_setup_logger.connect(quieten)


def task(name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register a function under a task name; it stays callable as it is."""

    def register(function: Callable[P, None]) -> Callable[P, None]:
        app.task(name=name)(function)
        return function

    return register
