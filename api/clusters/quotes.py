"""Price quotes by the clouds' catalogs: requested by the API, fetched by the worker.

Only the worker queries the clouds, and that takes seconds: the API stores a request, reads the
quotes that exist, and finds newer ones in the same rows later. A quote is for one node and shared
by all projects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.runs.deadlines import QUOTE_FRESHNESS, QUOTE_INTEREST, QUOTE_LEASE, QUOTE_RETRY
from api.tables import PriceQuote
from hillclimb.hardware.offers import Offer
from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec

PRICING = ("infra", "accelerators", "cpus", "memory_gb", "use_spot")
"""Fields of a candidate that determine its price in a catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotes:
    """The current price quotes of a spec's candidates."""

    offers: tuple[Offer, ...] | None = None
    """None before the first response."""
    as_of: datetime | None = None
    """Time of the oldest response."""
    is_awaited: bool = False
    """True while a response, or a newer one, is pending."""
    problem: str | None = None
    """Error of the newest query; None when it succeeded."""

    def summary(self, *, now: datetime) -> str:
        """Return a sentence on the age and completeness of the prices."""
        if self.as_of is not None:
            newer = "; newer ones are being fetched" if self.is_awaited else ""
            return f"Prices by the clouds' catalogs, {_ago(now - self.as_of)}{newer}."
        if self.problem is not None:
            return f"Prices are unknown: {self.problem.rstrip('.')}. The query is repeated."
        if self.is_awaited:
            return "Prices are being fetched: plan again in a few seconds."
        return "Prices are unknown here."


def request(session: Session, skypilot: SkyPilotSpec, *, now: datetime) -> None:
    """Request quotes of the spec's candidates; the worker fetches missing and old ones."""
    candidates = _priced_candidates(skypilot)
    # In key order: two transactions that request the same quotes never deadlock.
    for key in sorted(candidates):
        row = insert(PriceQuote).values(key=key, candidate=_pricing(candidates[key]), asked_at=now)
        session.execute(
            row.on_conflict_do_update(index_elements=[PriceQuote.key], set_={"asked_at": now})
        )


def quotes_of(session: Session, skypilot: SkyPilotSpec, *, now: datetime) -> Quotes:
    """Return the current quotes of the spec's candidates."""
    candidates = _priced_candidates(skypilot)
    query = select(PriceQuote).where(PriceQuote.key.in_(candidates))
    rows = {each.key: each for each in session.scalars(query)}
    if not rows:
        return Quotes()
    return _combine(skypilot, rows, now=now)


def claim(session: Session, *, now: datetime, limit: int) -> dict[str, CandidateSpec]:
    """Claim the due quotes, by key, under a lease."""
    query = (
        select(PriceQuote)
        .where(*_is_due(now))
        .order_by(PriceQuote.asked_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = session.scalars(query).all()
    for quote in rows:
        quote.lease_until = now + QUOTE_LEASE
    return {quote.key: CandidateSpec.model_validate(quote.candidate) for quote in rows}


def is_any_due(session: Session, *, now: datetime) -> bool:
    """Return True when a quote is due."""
    return session.scalar(select(PriceQuote.key).where(*_is_due(now)).limit(1)) is not None


def record(session: Session, key: str, offers: Iterable[Offer], *, now: datetime) -> None:
    """Record the offers of a catalog for one node; no offer is a response too."""
    quote = session.get_one(PriceQuote, key)
    quote.offers = [
        {"infra": each.infra, "sku": each.sku, "hourly_usd": each.hourly_usd} for each in offers
    ]
    quote.fetched_at, quote.problem, quote.lease_until = now, None, None


def fail(session: Session, keys: Iterable[str], problem: str, *, now: datetime) -> None:
    """Record a failed query; it is repeated after a back-off."""
    for key in keys:
        quote = session.get_one(PriceQuote, key)
        quote.problem, quote.lease_until = problem, now + QUOTE_RETRY


def quote_key(candidate: CandidateSpec) -> str:
    """Return the primary key of a candidate's quote."""
    return "|".join("" if value is None else str(value) for value in _pricing(candidate).values())


def _priced_candidates(skypilot: SkyPilotSpec) -> dict[str, CandidateSpec]:
    """Return the candidates with GPUs, by quote key: catalogs list no others."""
    return {quote_key(each): each for each in skypilot.candidates if each.accelerators}


def _pricing(candidate: CandidateSpec) -> dict[str, Any]:
    whole = candidate.model_dump(mode="json")
    return {name: whole[name] for name in PRICING}


def _is_due(now: datetime) -> tuple[Any, ...]:
    return (
        PriceQuote.asked_at > now - QUOTE_INTEREST,
        or_(PriceQuote.fetched_at.is_(None), PriceQuote.fetched_at < now - QUOTE_FRESHNESS),
        or_(PriceQuote.lease_until.is_(None), PriceQuote.lease_until < now),
    )


def _combine(skypilot: SkyPilotSpec, rows: dict[str, PriceQuote], *, now: datetime) -> Quotes:
    """Return offers only if every candidate has a quote: a part of them would mislead."""
    answers = [
        rows[key].fetched_at if key in rows else None for key in _priced_candidates(skypilot)
    ]
    ages = [each for each in answers if each is not None]
    problem = next((each.problem for each in rows.values() if each.problem), None)
    if len(ages) < len(answers):
        return Quotes(is_awaited=True, problem=problem)
    return Quotes(
        offers=tuple(_offers(skypilot, rows)),
        as_of=min(ages),
        is_awaited=min(ages) < now - QUOTE_FRESHNESS,
        problem=problem,
    )


def _offers(skypilot: SkyPilotSpec, rows: dict[str, PriceQuote]) -> Sequence[Offer]:
    return [
        Offer(
            candidate=number,
            infra=each["infra"],
            sku=each["sku"],
            hourly_usd=each["hourly_usd"] * skypilot.num_nodes,
        )
        for number, candidate in enumerate(skypilot.candidates)
        if (quote := rows.get(quote_key(candidate))) is not None
        for each in quote.offers or ()
    ]


def _ago(age: timedelta) -> str:
    minutes = max(0, round(age.total_seconds() / 60))
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago"
