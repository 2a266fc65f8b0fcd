"""Has ended validations leave out what they found to fail, where their specs say so."""

from __future__ import annotations

import logging
from datetime import datetime

from api.datasets.validated import exclude_what_failed, waiting_runs
from api.runs.journal import utc_now
from trainer.stores.base import StoreError
from worker.parts import Parts
from worker.resting import StoreResting

log = logging.getLogger(__name__)


def sweep(parts: Parts, *, now: datetime | None = None) -> int:
    """Deal with the validations that have ended; returns how many tasks were excluded anew."""
    moment = now or utc_now()
    with parts.database.transaction() as session:
        waiting = waiting_runs(session, now=moment)
    num_excluded = 0
    for run_id in waiting:
        try:
            num = exclude_what_failed(parts.database, parts.store, run_id, now=moment)
        except StoreResting:
            break  # the others' cannot be fetched either
        except StoreError as error:
            log.warning("the rows of %s cannot be fetched now: %s", run_id, error)
            continue
        except Exception:
            # What one project's trainer wrote must not keep the others' validations waiting.
            log.exception("what %s found to fail cannot be excluded", run_id)
            continue
        log.info("%s left out %d tasks", run_id, num or 0)
        num_excluded += num or 0
    return num_excluded
