"""The names Celery knows, each bound to the function that does it."""

from __future__ import annotations

from api.bell import RECONCILE_TASK
from api.clusters import quotes
from api.datasets.blobs import sweep_orphans
from api.notices.deliver import deliver_due
from api.runs.journal import utc_now
from worker import driver, reaper, relay, rounds, validations
from worker.app import (
    BEHIND_THE_CLOCK,
    CLUSTER,
    DELIVER,
    EXCLUDE,
    MAILBOX,
    OBSERVE,
    PRICE,
    REAP,
    RELAY,
    SPEND,
    SWEEP,
    SWEEP_CLUSTERS,
    SWEEP_DATASETS,
    app,
    task,
)
from worker.clusters import mailbox, observer, pricing, spending, step
from worker.parts import load_parts

BELL_LIFE_S = 10.0
"""A bell that nobody heard for this long is rung again by the sweep anyway."""
SENT = {"expires": BELL_LIFE_S, "priority": BEHIND_THE_CLOCK}


@task(RECONCILE_TASK)
def reconcile(run_id: str, must_be_due: bool = False) -> None:  # noqa: FBT001, FBT002
    """Take the steps one run needs now; what the sweep sends must still be due."""
    driver.reconcile(load_parts(), run_id, must_be_due=must_be_due)


@task(SWEEP)
def sweep_runs() -> None:
    """Send for every run that needs a look: what a lost bell costs is one period of the clock."""
    for run_id in rounds.runs(load_parts()):
        app.send_task(RECONCILE_TASK, args=(run_id, True), **SENT)


@task(CLUSTER)
def reconcile_cluster(cluster_id: str) -> None:
    """Take the steps one cluster needs now."""
    parts = load_parts()
    if parts.renting is not None:
        step.reconcile(parts, parts.renting.clouds(), cluster_id)


@task(SWEEP_CLUSTERS)
def sweep_clusters() -> None:
    """Send for every cluster that needs a look, and for prices that somebody wants to know."""
    parts = load_parts()
    if parts.renting is None:
        return
    with parts.database.transaction() as session:
        wants_prices = quotes.is_any_due(session, now=utc_now())
    for cluster_id in rounds.clusters(parts):
        app.send_task(CLUSTER, args=(cluster_id,), **SENT)
    if wants_prices:
        app.send_task(PRICE, expires=BELL_LIFE_S)


@task(PRICE)
def ask_prices() -> None:
    """Ask the clouds' catalogs for the prices that are wanted."""
    parts = load_parts()
    if parts.renting is not None:
        pricing.sweep(parts, parts.renting.clouds())


@task(OBSERVE)
def observe_clusters() -> None:
    """Look at all clusters once."""
    parts = load_parts()
    if parts.renting is not None:
        observer.sweep(parts, parts.renting.clouds(), dry_run=parts.renting.reaps_dry)


@task(SPEND)
def watch_budgets() -> None:
    """Look at what clusters have cost and how long they live: by our own rows, asking nobody."""
    spending.sweep(load_parts())


@task(RELAY)
def relay_events() -> None:
    """Fetch the events of trainers that are not heard."""
    relay.sweep(load_parts())


@task(EXCLUDE)
def exclude_failed_tasks() -> None:
    """Leave out what ended validations found to fail."""
    validations.sweep(load_parts())


@task(MAILBOX)
def read_mailbox() -> None:
    """Hear the nodes that cannot speak to the API, and leave them what is wanted."""
    mailbox.sweep(load_parts())


@task(DELIVER)
def deliver_messages() -> None:
    """Post the outbox's messages that are due."""
    deliver_due(load_parts().delivery)


@task(REAP)
def reap() -> None:
    """End what has no live owner."""
    reaper.sweep(load_parts())


@task(SWEEP_DATASETS)
def sweep_datasets() -> None:
    """Delete the files of dataset versions whose making was cut off."""
    parts = load_parts()
    sweep_orphans(parts.database, parts.store, now=utc_now())
