"""Delivers the outbox: load and render in one transaction, post without one, apply in another.

At least once: a deliverer that dies between Slack's answer and the write-back posts again. Messages
of a run go out in order, the first opens a thread and the rest answer in it. Nothing here can touch
a run beyond a warning in its events.
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
"""Waits vary by this share both ways, so that messages held up together do not return together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Parts that delivery uses: the database, Slack (null: no token), and how to link to a run."""

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
    """Try every message that is due, at most `limit`, and return how many were delivered.

    Begins no message after `BUDGET_S`: a Slack that hangs must not hold the worker's processes,
    which runs wait for; the next call goes on.
    """
    owner = secrets.token_hex(8)
    num_delivered = 0
    until = delivery.clock() + timedelta(seconds=BUDGET_S)
    for _ in range(limit):
        claim = _take(delivery, owner) if delivery.clock() < until else None
        if claim is None:
            break
        num_delivered += _deliver(delivery, claim)
    return num_delivered


def _take(delivery: Delivery, owner: str) -> Claim | None:
    """Claim in a transaction of its own: a message that cannot be rendered uses up its tries."""
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
        _give_up(delivery, claim, state=DEAD, why="every try ended without an answer")
        return False
    ready = _prepare(delivery, claim)
    thread_ts = ready.thread.ts if ready.thread else None
    try:
        posted = delivery.slack.post(ready.channel, ready.message, thread_ts=thread_ts)
    except RateLimited as error:
        _postpone(delivery, ready.claim, seconds=error.retry_after_s, why=str(error), counts=False)
    except SlackRefused as error:
        _give_up(delivery, ready.claim, state=DEAD, why=f"Slack refused it: {error}")
    except SlackUnavailable as error:
        if ready.claim.num_attempts >= MAX_ATTEMPTS:
            _give_up(delivery, ready.claim, state=DEAD, why=f"Slack did not take it: {error}")
        else:
            wait_s = backoff_s(ready.claim.num_attempts, delivery.rng)
            _postpone(delivery, ready.claim, seconds=wait_s, why=str(error), counts=True)
    else:
        _delivered(delivery, ready.claim, posted)
        return True
    return False


def backoff_s(num_attempts: int, rng: random.Random) -> float:
    """Return the wait after that many failed tries: doubling, capped, with jitter."""
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
    """Put the message back; a wait that Slack asked for is not held against it."""
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
        # The run before its message: the order in which the writer of events takes them.
        run = lock_run(session, claim.run_id)
        message = find_claimed(session, claim)
        if message is None:
            return
        is_first = not session.scalar(
            select(exists().where(OutboxMessage.run_id == run.id, OutboxMessage.state == state))
        )
        _close(message, state, error=why)
        log.warning("%s message of %s given up: %s", claim.kind, run.id, why)
        # Streams of an ended run are closed: nothing is told behind the end. Once is enough.
        if is_first and run.ended_at is None:
            warning = {"code": f"slack_{state}", "message": f"Slack was not told: {why}."}
            append(session, run, [Draft(type="run.warning", data=warning)])


def _close(message: OutboxMessage, state: str, *, error: str | None) -> None:
    message.state = state
    message.error = error
    message.lease_owner = None
    message.lease_until = None
