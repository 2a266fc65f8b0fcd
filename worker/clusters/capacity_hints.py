"""What a launch that is over teaches: which candidates failed, and how long to ask them last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.clusters import exclusions
from trainer.contract.clusters.clouds import cloud_of
from trainer.contract.clusters.spec import CandidateSpec
from worker.clusters.base import OfferTried, Outcome

NO_CAPACITY_FOR = timedelta(minutes=20)
"""Machines that were gone may be back soon."""
FAILED_FOR = timedelta(hours=1)
PERSON_FOR = timedelta(hours=6)
"""Quota and credentials change when somebody acts: who did clears the exclusion."""
_A_PERSON = re.compile(r"quota|credential|authori[sz]ed|forbidden|permission|denied|billing", re.I)
FAILURES = (Outcome.REFUSED, Outcome.FAILED)


def learn(
    session: Session,
    candidates: Sequence[CandidateSpec],
    tried: Sequence[OfferTried],
    *,
    is_ordered: bool,
    now: datetime,
) -> None:
    """Exclude for a while what failed, and forgive what could be had."""
    winner = next((number for number, each in enumerate(candidates) if _won(each, tried)), None)
    if winner is not None:
        exclusions.forgive(session, candidates[winner])
    # What comes after the one that was had was never asked for.
    asked = candidates[:winner] if is_ordered and winner is not None else candidates
    for candidate in asked:
        failed = [o for o in tried if o.outcome in FAILURES and _is_of(o, candidate)]
        if failed and not _won(candidate, tried):
            newest = failed[-1]
            reason = newest.message or newest.error_class or "the launch failed"
            until = now + _pause(newest)
            exclusions.exclude(session, candidate, reason, until=until, now=now)


def _won(candidate: CandidateSpec, tried: Sequence[OfferTried]) -> bool:
    return any(each.outcome is Outcome.UP and _is_of(each, candidate) for each in tried)


def _is_of(offer: OfferTried, candidate: CandidateSpec) -> bool:
    """The ledger names clouds and regions; a region that the candidate leaves open is its own."""
    _, _, place = candidate.infra.partition("/")
    region = place.partition("/")[0]
    return cloud_of(offer.infra) == candidate.cloud and (
        not region or offer.region is None or offer.region.startswith(region)
    )


def _pause(offer: OfferTried) -> timedelta:
    if _A_PERSON.search(offer.message or ""):
        return PERSON_FOR
    return NO_CAPACITY_FOR if offer.outcome is Outcome.REFUSED else FAILED_FOR
