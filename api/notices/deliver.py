"""Delivers the outbox: claims and renders in transactions, posts without one, records in another.

At least once: after a crash between Slack's response and the recording, the message is posted
again. Messages of a run are posted in order: the first opens a thread, the others reply to it.
Delivery changes nothing of a run except for a warning in its events.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import exists, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.notices.errors import RateLimited, SlackRefused, SlackUnavailable
from api.notices.messages import Message
from api.notices.render import render
from api.notices.slack import Posted, Slack
from api.runs.journal import Draft, append, utc_now
from api.runs.outbox import DEAD, DELIVERED, SKIPPED, Claim, claim_next, find_claimed
from api.runs.store import lock_run
from api.tables import OutboxMessage, SlackThread
from api.tables.database import Database

MAX_ATTEMPTS = 8
FIRST_BACKOFF_S = 5.0
MAX_BACKOFF_S = 600.0
BUDGET_S = 10.0
JITTER = 0.2
"""Random share of each back-off, so that messages that failed together are not retried together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Parts that delivery uses: the database, Slack (null without a token), the base of links."""

    database: Database
    slack: Slack | None
    public_url: str
    clock: Callable[[], datetime] = utc_now
    rng: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A claimed message with its body and its thread."""

    claim: Claim
    message: Message
    thread: Posted | None

    @property
    def channel(self) -> str:
        return self.thread.channel if self.thread else str(self.claim.payload["channel"])


def deliver_due(delivery: Delivery, *, limit: int = 50) -> int:
    """Try up to `limit` due messages, and return the number of delivered ones.

    Starts no message after `BUDGET_S`: if Slack hangs, it must not block worker processes that runs
    need. The next call continues.
    """
    owner = secrets.token_hex(8)
    num_delivered = 0
    until = delivery.clock() + timedelta(seconds=BUDGET_S)
    for _ in range(limit):
        claim = _claim(delivery, owner) if delivery.clock() < until else None
        if claim is None:
            break
        num_delivered += _deliver(delivery, claim)
    return num_delivered


def _claim(delivery: Delivery, owner: str) -> Claim | None:
    """Claim a message in its own transaction, so that failed rendering counts as a try too."""
    with delivery.database.transaction() as session:
        return claim_next(session, owner=owner, now=delivery.clock())


def _prepare(delivery: Delivery, claim: Claim) -> _Ready:
    with delivery.database.transaction() as session:
        return _Ready(
            claim=claim,
            message=render(session, claim, public_url=delivery.public_url),
            thread=_thread_of(session, claim),
        )


def _thread_of(session: Session, claim: Claim) -> Posted | None:
    query = select(SlackThread).where(SlackThread.run_id == claim.run_id)
    thread = session.scalar(query.limit(1))
    return Posted(channel=thread.channel, ts=thread.ts) if thread else None


def _deliver(delivery: Delivery, claim: Claim) -> bool:
    if delivery.slack is None:
        _give_up(delivery, claim, state=SKIPPED, why="the service has no Slack bot token")
        return False
    if claim.num_attempts > MAX_ATTEMPTS:
        _give_up(delivery, claim, state=DEAD, why="no try got a response")
        return False
    ready = _prepare(delivery, claim)
    thread_ts = ready.thread.ts if ready.thread else None
    try:
        posted = delivery.slack.post(ready.channel, ready.message, thread_ts=thread_ts)
    except RateLimited as error:
        _postpone(delivery, ready.claim, seconds=error.retry_after_s, why=str(error), counts=False)
    except SlackRefused as error:
        _give_up(delivery, ready.claim, state=DEAD, why=f"Slack rejected it: {error}")
    except SlackUnavailable as error:
        if ready.claim.num_attempts >= MAX_ATTEMPTS:
            _give_up(delivery, ready.claim, state=DEAD, why=f"Slack was unavailable: {error}")
        else:
            wait_s = backoff_s(ready.claim.num_attempts, delivery.rng)
            _postpone(delivery, ready.claim, seconds=wait_s, why=str(error), counts=True)
    else:
        _delivered(delivery, ready.claim, posted)
        return True
    return False


def backoff_s(num_attempts: int, rng: random.Random) -> float:
    """Return the back-off after so many failed tries: exponential, capped, with jitter."""
    wait_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (num_attempts - 1))
    return wait_s * rng.uniform(1.0 - JITTER, 1.0 + JITTER)


def _delivered(delivery: Delivery, claim: Claim, posted: Posted) -> None:
    with delivery.database.transaction() as session:
        message = find_claimed(session, claim)
        if message is None:
            return
        _close(message, DELIVERED, error=None)
        message.delivered_at = delivery.clock()
        session.execute(
            insert(SlackThread)
            .values(run_id=claim.run_id, channel=posted.channel, ts=posted.ts)
            .on_conflict_do_nothing()
        )


def _postpone(delivery: Delivery, claim: Claim, *, seconds: float, why: str, counts: bool) -> None:
    """Schedule the next try; only where `counts` this one counts toward the maximum."""
    with delivery.database.transaction() as session:
        message = find_claimed(session, claim)
        if message is None:
            return
        message.next_attempt_at = delivery.clock() + timedelta(seconds=seconds)
        message.error = why
        message.lease_owner = None
        message.lease_until = None
        if not counts:
            message.num_attempts -= 1


def _give_up(delivery: Delivery, claim: Claim, *, state: str, why: str) -> None:
    with delivery.database.transaction() as session:
        # Locks the run before its message, in the same order as the writer of events.
        run = lock_run(session, claim.run_id)
        message = find_claimed(session, claim)
        if message is None:
            return
        is_first = not session.scalar(
            select(
                exists().where(
                    OutboxMessage.run_id == run.id,
                    OutboxMessage.webhook_id.is_(None),
                    OutboxMessage.state == state,
                )
            )
        )
        _close(message, state, error=why)
        log.warning("%s message of %s not delivered: %s", claim.kind, run.id, why)
        # Streams of an ended run are closed, so it gets no more events. One warning is enough.
        if is_first and run.ended_at is None:
            warning = {
                "code": f"slack_{state}",
                "message": f"A Slack message was not delivered: {why}.",
            }
            append(session, run, [Draft(type="run.warning", data=warning)])


def _close(message: OutboxMessage, state: str, *, error: str | None) -> None:
    message.state = state
    message.error = error
    message.lease_owner = None
    message.lease_until = None
