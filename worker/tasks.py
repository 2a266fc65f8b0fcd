"""Celery's tasks, each bound to the function that does its work."""

from __future__ import annotations

from api.clusters import quotes
from api.datasets.blobs import sweep_orphans
from api.notices.deliver import deliver_due
from api.notices.refresh import refresh_due
from api.notices.webhooks.deliver import deliver_due_webhooks
from api.queue import RECONCILE_TASK
from api.runs.journal import utc_now
from api.settings import load_settings
from worker.app import (
    BLOB_CHANNEL,
    CLUSTER,
    DELIVER,
    DELIVER_WEBHOOKS,
    EXCLUDE,
    FAN_OUT_PRIORITY,
    OBSERVE,
    PRICE,
    REAP,
    RELAY,
    REMOVE,
    RETAIN,
    SPEND,
    SWEEP,
    SWEEP_CLUSTERS,
    SWEEP_DATASETS,
    app,
    task,
)
from worker.clusters import blob_channel, observer, pricing, reconciler
from worker.context import load_context, load_webhooks
from worker.deadlines import MESSAGE_TTL_S
from worker.runs import driver, guards, reaper, relay, spending, sweeps, validations
from worker.runs.removal import retention
from worker.runs.removal import sweep as removals
from worker.runs.removal.retention import RetentionRules

FAN_OUT = {"expires": MESSAGE_TTL_S, "priority": FAN_OUT_PRIORITY}


@task(RECONCILE_TASK)
def reconcile(run_id: str, must_be_due: bool = False) -> None:  # noqa: FBT001, FBT002
    """Take the steps due for one run; messages from the sweep require that it is still due."""
    driver.reconcile(load_context(), run_id, must_be_due=must_be_due)


@task(SWEEP)
def sweep_runs() -> None:
    """Send a task for every due run; a lost message is made good here within one period.

    Guards of progress are checked afterwards: the sweep has restarted them after an outage.
    """
    context = load_context()
    for run_id in sweeps.runs(context):
        app.send_task(RECONCILE_TASK, args=(run_id, True), **FAN_OUT)
    guards.sweep(context)


@task(CLUSTER)
def reconcile_cluster(cluster_id: str) -> None:
    """Take the actions due for one cluster."""
    context = load_context()
    if context.cloud_provider is not None:
        reconciler.reconcile(context, context.cloud_provider.clouds(), cluster_id)


@task(SWEEP_CLUSTERS)
def sweep_clusters() -> None:
    """Send a task for every due cluster, and one for requested prices."""
    context = load_context()
    if context.cloud_provider is None:
        return
    with context.database.transaction() as session:
        is_price_due = quotes.is_any_due(session, now=utc_now())
    for cluster_id in sweeps.clusters(context):
        app.send_task(CLUSTER, args=(cluster_id,), **FAN_OUT)
    if is_price_due:
        app.send_task(PRICE, expires=MESSAGE_TTL_S)


@task(PRICE)
def ask_prices() -> None:
    """Query the clouds' catalogs for the requested prices."""
    context = load_context()
    if context.cloud_provider is not None:
        pricing.sweep(context, context.cloud_provider.clouds())


@task(OBSERVE)
def observe_clusters() -> None:
    """Poll all clusters once."""
    context = load_context()
    if context.cloud_provider is not None:
        observer.sweep(
            context, context.cloud_provider.clouds(), dry_run=context.cloud_provider.reaps_dry
        )


@task(SPEND)
def watch_budgets() -> None:
    """Check budgets and time limits against our own rows; calls no cloud."""
    spending.sweep(load_context())


@task(RELAY)
def relay_events() -> None:
    """Fetch the events of silent trainers from the blob store."""
    relay.sweep(load_context())


@task(EXCLUDE)
def exclude_failed_tasks() -> None:
    """Exclude the tasks that ended validations found to fail."""
    validations.sweep(load_context())


@task(BLOB_CHANNEL)
def exchange_node_messages() -> None:
    """Exchange messages with nodes through the blob store."""
    blob_channel.sweep(load_context())


@task(DELIVER)
def deliver_messages() -> None:
    """Deliver the outbox messages that are due, and keep the runs' live messages current."""
    delivery = load_context().delivery
    deliver_due(delivery)
    refresh_due(delivery)


@task(DELIVER_WEBHOOKS)
def deliver_webhooks() -> None:
    """Deliver the webhooks' messages that are due; apart from Slack's, so that neither waits."""
    deliver_due_webhooks(load_webhooks())


@task(REAP)
def reap() -> None:
    """End attempts and delete rows without a live owner."""
    reaper.sweep(load_context())


@task(REMOVE)
def remove_deleted() -> None:
    """Continue the deletions that were requested."""
    removals.sweep(load_context())


@task(RETAIN)
def retain() -> None:
    """Remove what the operator's settings no longer want of runs that ended long ago."""
    retention.sweep(load_context(), RetentionRules.of(load_settings()))


@task(SWEEP_DATASETS)
def sweep_datasets() -> None:
    """Delete the files of dataset versions whose creation was interrupted."""
    context = load_context()
    sweep_orphans(context.database, context.store, now=utc_now())
