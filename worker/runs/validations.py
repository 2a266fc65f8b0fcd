"""Excludes the tasks that ended validations found to fail, where their specs say so."""

from __future__ import annotations

import logging
from datetime import datetime

from api.datasets.validation_exclusions import exclude_what_failed, waiting_runs
from api.runs.journal import utc_now
from hillclimb.blobs.base import StoreError
from worker.circuit_breaker import CircuitOpen
from worker.context import WorkerContext

log = logging.getLogger(__name__)


def sweep(context: WorkerContext, *, now: datetime | None = None) -> int:
    """Process the ended validations; returns the count of newly excluded tasks."""
    moment = now or utc_now()
    with context.database.transaction() as session:
        waiting = waiting_runs(session, now=moment)
    num_excluded = 0
    for run_id in waiting:
        try:
            num = exclude_what_failed(context.database, context.store, run_id, now=moment)
        except CircuitOpen:
            break  # the same store has the others
        except StoreError as error:
            log.warning("the results of %s cannot be fetched: %s", run_id, error)
            continue
        except Exception:
            # Malformed results of one project must not block the other projects' validations.
            log.exception("the tasks that failed in %s cannot be excluded", run_id)
            continue
        log.info("%s excluded %d tasks", run_id, num or 0)
        num_excluded += num or 0
    return num_excluded
