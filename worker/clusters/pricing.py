"""Asks the clouds' catalogs what plans and submissions want to know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from api.clusters import quotes
from api.runs.journal import utc_now
from trainer.contract.clusters.spec import CandidateSpec, TrainerInstall
from worker.clusters.base import Clouds, CloudsError, ClusterPlan
from worker.parts import Parts

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Kinds of machines in one question: the candidates of a few specs."""


def sweep(parts: Parts, clouds: Clouds, *, clock: Callable[[], datetime] = utc_now) -> int:
    """Ask once for all that is due; returns for how many kinds of machines there is an answer."""
    with parts.database.transaction() as session:
        due = quotes.claim(session, now=clock(), limit=AT_ONCE)
    if not due:
        return 0
    try:
        offers = clouds.offers(_question(due.values()))
    except CloudsError as fault:
        log.warning("prices were not got: %s", fault)
        with parts.database.transaction() as session:
            quotes.fail(session, due, str(fault), now=clock())
        return 0
    with parts.database.transaction() as session:
        for number, key in enumerate(due):
            mine = (each for each in offers if each.candidate == number)
            quotes.record(session, key, mine, now=clock())
    return len(due)


def _question(candidates: Iterable[CandidateSpec]) -> ClusterPlan:
    """One node of each kind; nothing of it is launched."""
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
