"""Excludes for a while the candidates that failed in a finished launch: they are tried last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.clusters import exclusions
from hillclimb.spec.backend.clouds import cloud_of
from hillclimb.spec.backend.skypilot import CandidateSpec
from worker.deadlines import FAILURE_EXCLUSION, NO_CAPACITY_EXCLUSION, OPERATOR_EXCLUSION
from worker.skypilot.port import OfferOutcome, TriedOffer

_NEEDS_OPERATOR = re.compile(
    r"quota|credential|authori[sz]ed|forbidden|permission|denied|billing", re.I
)
FAILURES = (OfferOutcome.REFUSED, OfferOutcome.FAILED)


def update_exclusions(
    session: Session,
    candidates: Sequence[CandidateSpec],
    offers: Sequence[TriedOffer],
    *,
    is_ordered: bool,
    now: datetime,
) -> None:
    """Exclude the candidates that failed, and delete the exclusion of the one that came up."""
    winner = next((number for number, each in enumerate(candidates) if _is_up(each, offers)), None)
    if winner is not None:
        exclusions.lift(session, candidates[winner])
    # With `choose: ordered` the candidates after the winner were never requested.
    requested = candidates[:winner] if is_ordered and winner is not None else candidates
    for candidate in requested:
        failed = [o for o in offers if o.outcome in FAILURES and _is_of(o, candidate)]
        if failed and not _is_up(candidate, offers):
            newest = failed[-1]
            reason = newest.message or newest.error_class or "the launch failed"
            until = now + _pause(newest)
            exclusions.exclude(session, candidate, reason, until=until, now=now)


def _is_up(candidate: CandidateSpec, offers: Sequence[TriedOffer]) -> bool:
    return any(o.outcome is OfferOutcome.UP and _is_of(o, candidate) for o in offers)


def _is_of(offer: TriedOffer, candidate: CandidateSpec) -> bool:
    """Match an offer to a candidate by cloud and region; a candidate without one takes any."""
    _, _, place = candidate.infra.partition("/")
    region = place.partition("/")[0]
    return cloud_of(offer.infra) == candidate.cloud and (
        not region or offer.region is None or offer.region.startswith(region)
    )


def _pause(offer: TriedOffer) -> timedelta:
    if _NEEDS_OPERATOR.search(offer.message or ""):
        return OPERATOR_EXCLUSION
    return NO_CAPACITY_EXCLUSION if offer.outcome is OfferOutcome.REFUSED else FAILURE_EXCLUSION
