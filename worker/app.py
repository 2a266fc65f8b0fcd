"""The Celery application: a task queue and a schedule. The work itself is in the database.

Tasks are short, carry ids only, and may be lost, repeated or run twice at once. So late
acknowledgement is safe, results are ignored, and a scheduled message expires before the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec

from celery import Celery, signals

from api.settings import load_settings
from hillclimb.process import tracing
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.stack.system import alive
from worker.deadlines import CLOUD_TASK_LIMIT_S, TASK_LIMIT_S, VISIBILITY_TIMEOUT_S

P = ParamSpec("P")

SWEEP = "runs.sweep"
RELAY = "relay.sweep"
DELIVER = "outbox.deliver"
DELIVER_WEBHOOKS = "webhooks.deliver"
REAP = "reaper.sweep"
SWEEP_DATASETS = "datasets.sweep"
REMOVE = "removals.sweep"
RETAIN = "retention.sweep"
EXCLUDE = "validations.exclude"
CLUSTER = "clusters.reconcile"
SWEEP_CLUSTERS = "clusters.sweep"
OBSERVE = "clusters.observe"
PRICE = "clusters.price"
BLOB_CHANNEL = "nodes.mailbox"
SPEND = "budgets.watch"

SWEEP_PERIOD_S = {
    SWEEP: 2.0,
    SWEEP_CLUSTERS: 2.0,
    DELIVER: 2.0,
    DELIVER_WEBHOOKS: 2.0,
    RELAY: 5.0,
    BLOB_CHANNEL: 5.0,
    EXCLUDE: 5.0,
    REMOVE: 5.0,
    OBSERVE: 15.0,
    SPEND: 15.0,
    REAP: 30.0,
    RETAIN: 30.0,
    SWEEP_DATASETS: 900.0,
}
"""Period of each sweep in Celery's beat schedule."""

CLOUD_TASKS = (CLUSTER, OBSERVE, PRICE)

CLUSTERS_QUEUE = "clusters"
"""Queue of the tasks that call clouds, which takes tens of seconds. Separate workers serve it
(`celery worker -Q clusters`), so that no run waits behind them."""

FAN_OUT_PRIORITY = 6
"""Priority of the tasks that a sweep sends (0 goes first): a thousand of them must not delay the
next scheduled tasks until those expire."""


def configuration() -> dict[str, Any]:
    """Return Celery's settings, read when the first process needs them."""
    settings = load_settings()
    # Without clouds no worker serves their queue: messages would pile up there.
    scheduled = [name for name in SWEEP_PERIOD_S if settings.clouds or name not in CLOUD_TASKS]
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
        "task_annotations": {name: {"time_limit": CLOUD_TASK_LIMIT_S} for name in CLOUD_TASKS},
        "task_routes": {name: {"queue": CLUSTERS_QUEUE} for name in CLOUD_TASKS},
        "timezone": "UTC",
        "worker_send_task_events": False,
        "beat_scheduler": "worker.beat:SteadyScheduler",
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "beat_schedule": {
            name: {
                "task": name,
                "schedule": SWEEP_PERIOD_S[name],
                "options": {"expires": SWEEP_PERIOD_S[name]},
            }
            for name in scheduled
        },
    }


TASKS = "worker.tasks"
app = Celery("hillclimb", include=[TASKS])
app.add_defaults(configuration)


def import_tasks(**_: object) -> None:
    """Import the tasks, just before Celery would do it with the garbage collector running."""
    with gc_paused_import():
        import_module(TASKS)


signals.import_modules.connect(import_tasks)

NOISY_LOGGERS = ("celery.worker.strategy", "celery.app.trace")
"""They log two lines per task at INFO, four a second; failures are logged as errors."""


def quieten(**_: object) -> None:
    """Raise the level of loggers that would fill the worker's log."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


signals.after_setup_logger.connect(quieten)


def start_process(**_: object) -> None:
    """Start what a process of the pool has of its own."""
    tracing.start_tracing("hillclimb-worker")


def stop_process(**_: object) -> None:
    """Export the last spans of a process of the pool."""
    tracing.stop_tracing()


signals.worker_process_init.connect(start_process)
signals.worker_process_shutdown.connect(stop_process)
signals.task_postrun.connect(alive.touch)  # in workers
signals.before_task_publish.connect(alive.touch)  # in beat


def task(name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register a function under a task name; it stays callable directly."""

    def register(function: Callable[P, None]) -> Callable[P, None]:
        app.task(name=name)(function)
        return function

    return register
