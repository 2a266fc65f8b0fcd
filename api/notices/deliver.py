"""Delivers the outbox: claims and renders in transactions, posts without one, records in another.

At least once: after a crash between Slack's response and the recording, the message is posted
again. Messages of a run are posted in order, as replies to its live message, which the first of
them posts and `refresh` keeps current. Delivery changes nothing of a run except for a warning in
its events.
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

from api.notices.errors import RateLimited, SlackRefused, SlackUnavailable
from api.notices.render import is_opening, render
from api.notices.slack.blocks import Message
from api.notices.slack.live import digest_of, live_message
from api.notices.slack.web_api import Posted, Slack
from api.results.artifacts.logs import tail_log
from api.runs.journal import Draft, append, utc_now
from api.runs.outbox import DEAD, DELIVERED, SKIPPED, Claim, claim_next, find_claimed
from api.runs.status import RunStatus
from api.runs.store import lock_run
from api.tables import OutboxMessage, Run, SlackThread
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore, StoreError

MAX_ATTEMPTS = 8
FIRST_BACKOFF_S = 5.0
MAX_BACKOFF_S = 600.0
AWAITED_S = 2.0
BUDGET_S = 10.0
JITTER = 0.2
"""Random share of each back-off, so that messages that failed together are not retried together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Parts that delivery uses: the database, Slack (null without a token), the base of links.

    Messages about failed runs quote the last lines of the log from the store.
    """

    database: Database
    slack: Slack | None
    public_url: str
    store: BlobStore | None = None
    clock: Callable[[], datetime] = utc_now
    rng: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A claimed message with its body and its thread."""

    claim: Claim
    message: Message | None
    """Null for the message that only opens the thread."""
    thread: Posted | None
    is_awaited: bool
    """True while `refresh` has yet to post the live message of a channel that watches."""

    @property
    def channel(self) -> str:
        return str(self.claim.payload["channel"])


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
    tail = _log_tail(delivery, claim)
    with delivery.database.transaction() as session:
        thread = session.get(SlackThread, (claim.run_id, str(claim.payload["channel"])))
        is_posted = thread is not None and thread.ts is not None
        return _Ready(
            claim=claim,
            message=None
            if is_opening(claim)
            else render(
                session, claim, public_url=delivery.public_url, now=delivery.clock(), log_tail=tail
            ),
            thread=Posted(channel=str(thread.channel_id), ts=str(thread.ts))
            if thread is not None and is_posted
            else None,
            is_awaited=thread is not None and not is_posted and thread.next_update_at is not None,
        )


def _log_tail(delivery: Delivery, claim: Claim) -> str:
    """Return the last lines of a failed run's log, read before any transaction; else nothing."""
    if claim.kind != "ended" or delivery.store is None:
        return ""
    with delivery.database.transaction() as session:
        run = session.get_one(Run, claim.run_id)
        status, attempt = run.status, run.attempt
    if status != RunStatus.FAILED.value or attempt < 1:
        return ""
    try:
        return tail_log(delivery.store, claim.run_id, attempt)
    except StoreError as error:
        log.warning("the log of %s cannot be read: %s", claim.run_id, error)
        return ""


def _deliver(delivery: Delivery, claim: Claim) -> bool:
    if delivery.slack is None:
        _give_up(delivery, claim, state=SKIPPED, why="the service has no Slack bot token")
        return False
    if claim.num_attempts > MAX_ATTEMPTS:
        _give_up(delivery, claim, state=DEAD, why="no try got a response")
        return False
    ready = _prepare(delivery, claim)
    if ready.is_awaited:
        why = "the live message is not posted yet"
        _postpone(delivery, ready.claim, seconds=AWAITED_S, why=why, counts=False)
        return False
    return _post(delivery, delivery.slack, ready)


def _post(delivery: Delivery, slack: Slack, ready: _Ready) -> bool:
    """Post the message, after the live message where there is none yet; False if it failed."""
    try:
        thread = ready.thread or _open_thread(delivery, slack, ready)
        if ready.message is not None:
            slack.post(thread.channel, ready.message, thread_ts=thread.ts)
    except RateLimited as error:
        _postpone(delivery, ready.claim, seconds=error.retry_after_s, why=str(error), counts=False)
        return False
    except SlackRefused as error:
        _give_up(delivery, ready.claim, state=DEAD, why=f"Slack rejected it: {error}")
        return False
    except SlackUnavailable as error:
        _fail(delivery, ready.claim, error)
        return False
    _delivered(delivery, ready.claim)
    return True


def _fail(delivery: Delivery, claim: Claim, error: SlackUnavailable) -> None:
    if claim.num_attempts >= MAX_ATTEMPTS:
        _give_up(delivery, claim, state=DEAD, why=f"Slack was unavailable: {error}")
    else:
        wait_s = backoff_s(claim.num_attempts, delivery.rng)
        _postpone(delivery, claim, seconds=wait_s, why=str(error), counts=True)


def _open_thread(delivery: Delivery, slack: Slack, ready: _Ready) -> Posted:
    """Post the run's live message; later messages of the run reply to it."""
    run_id, now = ready.claim.run_id, delivery.clock()
    with delivery.database.transaction() as session:
        run = session.get_one(Run, run_id)
        seq = run.last_seq
        message = live_message(session, run, public_url=delivery.public_url, now=now)
    posted = slack.post(ready.channel, message, thread_ts=None)
    row: dict[str, object] = {"run_id": run_id, "channel": ready.channel}
    row |= {"channel_id": posted.channel, "ts": posted.ts}
    row |= {"seq": seq, "digest": digest_of(message), "next_update_at": delivery.clock()}
    with delivery.database.transaction() as session:
        session.execute(
            insert(SlackThread)
            .values(**row)
            .on_conflict_do_update(
                index_elements=[SlackThread.run_id, SlackThread.channel], set_=row | {"error": None}
            )
        )
    return posted


def backoff_s(num_attempts: int, rng: random.Random) -> float:
    """Return the back-off after so many failed tries: exponential, capped, with jitter."""
    wait_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** (num_attempts - 1))
    return wait_s * rng.uniform(1.0 - JITTER, 1.0 + JITTER)


def _delivered(delivery: Delivery, claim: Claim) -> None:
    with delivery.database.transaction() as session:
        message = find_claimed(session, claim)
        if message is not None:
            _close(message, DELIVERED, error=None)
            message.delivered_at = delivery.clock()


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
