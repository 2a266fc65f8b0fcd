"""What machines cost by their clouds' catalogs: wanted by the API, asked for by the worker.

Only the worker can ask the clouds, and that takes seconds: who wants a price writes that down, gets
what is known by now, and finds the answer in the same place a little later. A quote is of one node;
nothing here is of a project.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables import PriceQuote
from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.spec import CandidateSpec, SkyPilotSpec

FRESH = timedelta(hours=1)
"""An older answer is asked for again, and shown until the new one is there."""
PATIENCE = timedelta(minutes=10)
"""What nobody wanted to know for so long is not asked for."""
LEASE = timedelta(seconds=90)
"""Above the deadline of one question to the clouds."""
PAUSE = timedelta(seconds=30)
"""After a question that got no answer."""
KEPT = timedelta(days=7)
PRICING = ("infra", "accelerators", "cpus", "memory_gb", "use_spot")
"""What a catalog's price goes by; the rest of a candidate does not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """What is known of a spec's prices now."""

    offers: tuple[Offer, ...] | None = None
    """None: nobody has answered yet."""
    as_of: datetime | None = None
    """When the oldest of the answers was got."""
    is_awaited: bool = False
    """Whether an answer, or a newer one, is on its way."""
    problem: str | None = None
    """Why the newest question got no answer."""

    def told(self, *, now: datetime) -> str:
        """Say in a sentence how good the prices are."""
        if self.as_of is not None:
            newer = "; newer ones are being asked for" if self.is_awaited else ""
            return f"Prices are of {_ago(now - self.as_of)}, by the clouds' catalogs{newer}."
        if self.problem is not None:
            return f"Prices are not known: {self.problem.rstrip('.')}. They are asked for again."
        if self.is_awaited:
            return "Prices are being asked for: plan again in a few seconds."
        return "Prices are not known here."


def ask(session: Session, skypilot: SkyPilotSpec, *, now: datetime) -> None:
    """Have asked for what is missing or old; `known` then says so."""
    wanted = _wanted(skypilot)
    # In one order for everybody: two that want the same never wait for each other.
    for key in sorted(wanted):
        kept = insert(PriceQuote).values(key=key, candidate=_pricing(wanted[key]), asked_at=now)
        session.execute(
            kept.on_conflict_do_update(index_elements=[PriceQuote.key], set_={"asked_at": now})
        )


def known(session: Session, skypilot: SkyPilotSpec, *, now: datetime) -> Quoted:
    """Return what is known by now."""
    wanted = _wanted(skypilot)
    query = select(PriceQuote).where(PriceQuote.key.in_(wanted))
    found = {each.key: each for each in session.scalars(query)}
    if not wanted or not found:
        return Quoted()
    return _quoted(skypilot, found, now=now)


def claim(session: Session, *, now: datetime, limit: int) -> dict[str, CandidateSpec]:
    """Take what is to be asked of the clouds now, by key; nobody else asks it meanwhile."""
    query = (
        select(PriceQuote)
        .where(*_is_due(now))
        .order_by(PriceQuote.asked_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    taken = session.scalars(query).all()
    for quote in taken:
        quote.lease_until = now + LEASE
    return {quote.key: CandidateSpec.model_validate(quote.candidate) for quote in taken}


def is_any_due(session: Session, *, now: datetime) -> bool:
    """Say whether anything is to be asked."""
    return session.scalar(select(PriceQuote.key).where(*_is_due(now)).limit(1)) is not None


def record(session: Session, key: str, offers: Iterable[Offer], *, now: datetime) -> None:
    """Write down what the clouds answered for one node; nothing is an answer too."""
    quote = session.get_one(PriceQuote, key)
    quote.offers = [
        {"infra": each.infra, "sku": each.sku, "hourly_usd": each.hourly_usd} for each in offers
    ]
    quote.fetched_at, quote.problem, quote.lease_until = now, None, None


def fail(session: Session, keys: Iterable[str], problem: str, *, now: datetime) -> None:
    """Write down that nobody answered; it is asked again after a pause."""
    for key in keys:
        quote = session.get_one(PriceQuote, key)
        quote.problem, quote.lease_until = problem, now + PAUSE


def quote_key(candidate: CandidateSpec) -> str:
    """Return the name under which a candidate's price is kept."""
    return "|".join("" if value is None else str(value) for value in _pricing(candidate).values())


def _wanted(skypilot: SkyPilotSpec) -> dict[str, CandidateSpec]:
    """Catalogs list machines with GPUs alone."""
    return {quote_key(each): each for each in skypilot.candidates if each.accelerators}


def _pricing(candidate: CandidateSpec) -> dict[str, Any]:
    whole = candidate.model_dump(mode="json")
    return {name: whole[name] for name in PRICING}


def _is_due(now: datetime) -> tuple[Any, ...]:
    return (
        PriceQuote.asked_at > now - PATIENCE,
        or_(PriceQuote.fetched_at.is_(None), PriceQuote.fetched_at < now - FRESH),
        or_(PriceQuote.lease_until.is_(None), PriceQuote.lease_until < now),
    )


def _quoted(skypilot: SkyPilotSpec, known: dict[str, PriceQuote], *, now: datetime) -> Quoted:
    """Prices of a part of the candidates would mislead: all are known, or none."""
    answers = [known[key].fetched_at if key in known else None for key in _wanted(skypilot)]
    ages = [each for each in answers if each is not None]
    problem = next((each.problem for each in known.values() if each.problem), None)
    if len(ages) < len(answers):
        return Quoted(is_awaited=True, problem=problem)
    return Quoted(
        offers=tuple(_offers(skypilot, known)),
        as_of=min(ages),
        is_awaited=min(ages) < now - FRESH,
        problem=problem,
    )


def _offers(skypilot: SkyPilotSpec, known: dict[str, PriceQuote]) -> Sequence[Offer]:
    return [
        Offer(
            candidate=number,
            infra=each["infra"],
            sku=each["sku"],
            hourly_usd=each["hourly_usd"] * skypilot.num_nodes,
        )
        for number, candidate in enumerate(skypilot.candidates)
        if (quote := known.get(quote_key(candidate))) is not None
        for each in quote.offers or ()
    ]


def _ago(age: timedelta) -> str:
    minutes = max(0, round(age.total_seconds() / 60))
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago"
