"""Queries the clouds' catalogs for the prices that plans and submissions requested."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from api.clusters import quotes
from api.runs.journal import utc_now
from hillclimb.spec.backend.skypilot import CandidateSpec, TrainerInstall
from worker.context import WorkerContext
from worker.skypilot.port import Clouds, CloudsError, ClusterPlan

log = logging.getLogger(__name__)

BATCH = 64
"""Kinds of machines in one query: the candidates of a few specs."""


def sweep(
    context: WorkerContext, clouds: Clouds, *, clock: Callable[[], datetime] = utc_now
) -> int:
    """Query all due prices once; returns the count of machine kinds that got an answer."""
    with context.database.transaction() as session:
        candidates = quotes.claim(session, now=clock(), limit=BATCH)
    if not candidates:
        return 0
    try:
        offers = clouds.list_offers(_query(candidates.values()))
    except CloudsError as fault:
        log.warning("prices could not be queried: %s", fault)
        with context.database.transaction() as session:
            quotes.fail(session, candidates, str(fault), now=clock())
        return 0
    with context.database.transaction() as session:
        for number, key in enumerate(candidates):
            matches = (offer for offer in offers if offer.candidate == number)
            quotes.record(session, key, matches, now=clock())
    return len(candidates)


def _query(candidates: Iterable[CandidateSpec]) -> ClusterPlan:
    """Return a plan of one node of each kind, which is never launched."""
    return ClusterPlan(
        name="prices",
        job_name="prices",
        candidates=tuple(candidates),
        is_ordered=True,
        num_nodes=1,
        trainer=TrainerInstall(),
        setup="",
        run="",
    )
