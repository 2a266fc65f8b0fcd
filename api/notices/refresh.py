"""Keeps the live messages of runs current, and posts those that somebody watches.

The state is in the rows: a process that takes over continues where another one stopped. A message
is updated at most once per `MIN_UPDATE_S`, however many events the run has meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Select, or_, select, update
from sqlalchemy.orm import Session

from api.notices.deliver import Delivery
from api.notices.errors import RateLimited, SlackRefused, SlackUnavailable
from api.notices.slack.blocks import Message
from api.notices.slack.facts import has_live_machines
from api.notices.slack.live import digest_of, live_message
from api.notices.slack.web_api import Posted, Slack
from api.runs.deadlines import OUTBOX_LEASE_S
from api.runs.outbox import may_watch
from api.runs.status import TERMINAL, RunStatus
from api.tables import Run, SlackThread

MIN_UPDATE_S = 5.0
"""Slack accepts about one update per second and channel."""
ENDED_UPDATE_S = 30.0
"""An ended run is looked at this often until its machines are terminated."""
RETRY_S = 30.0
BUDGET_S = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A live message that this process sends until its lease ends."""

    run_id: str
    channel: str
    posted: Posted | None
    message: Message
    digest: str
    is_current: bool
    """True when Slack has this very message already."""
    seq: int
    period_s: float | None
    """Time to the next look; null: this is the run's last state."""


def refresh_due(delivery: Delivery, *, limit: int = 50) -> int:
    """Send up to `limit` live messages that changed, and return the number of sent ones."""
    slack = delivery.slack
    if slack is None:
        return 0
    num_sent = 0
    until = delivery.clock() + timedelta(seconds=BUDGET_S)
    for _ in range(limit):
        due = _take(delivery) if delivery.clock() < until else None
        if due is None:
            break
        try:
            posted = _send(slack, due)
        except RateLimited as error:
            _wait(delivery, due, seconds=error.retry_after_s)
            break
        except SlackUnavailable as error:
            _fail(delivery, due, str(error), again_s=RETRY_S)
        except SlackRefused as error:
            _fail(delivery, due, f"Slack rejected it: {error}", again_s=None)
        else:
            _record(delivery, due, posted)
            num_sent += not due.is_current
    return num_sent


def _take(delivery: Delivery) -> _Due | None:
    """Take the message that waits longest, and render it."""
    now = delivery.clock()
    with delivery.database.transaction() as session:
        thread = session.scalar(_due_query(now).with_for_update(skip_locked=True, of=SlackThread))
        if thread is None:
            return None
        thread.next_update_at = now + timedelta(seconds=OUTBOX_LEASE_S)
        run = session.get_one(Run, thread.run_id)
        message = live_message(session, run, public_url=delivery.public_url, now=now)
        digest = digest_of(message)
        is_posted = thread.ts is not None and thread.channel_id is not None
        return _Due(
            run_id=run.id,
            channel=thread.channel,
            posted=Posted(channel=str(thread.channel_id), ts=str(thread.ts)) if is_posted else None,
            message=message,
            digest=digest,
            is_current=is_posted and digest == thread.digest,
            seq=run.last_seq,
            period_s=_period_s(session, run),
        )


def _due_query(now: datetime) -> Select[SlackThread]:
    has_news = or_(
        SlackThread.ts.is_(None), Run.last_seq > SlackThread.seq, Run.ended_at.is_not(None)
    )
    return (
        select(SlackThread)
        .join(Run, Run.id == SlackThread.run_id)
        .where(SlackThread.next_update_at <= now, has_news, may_watch())
        .order_by(SlackThread.next_update_at)
        .limit(1)
    )


def _period_s(session: Session, run: Run) -> float | None:
    if RunStatus(run.status) not in TERMINAL:
        return MIN_UPDATE_S
    return ENDED_UPDATE_S if has_live_machines(session, run) else None


def _send(slack: Slack, due: _Due) -> Posted:
    if due.posted is None:
        return slack.post(due.channel, due.message, thread_ts=None)
    if not due.is_current:
        slack.update(due.posted, due.message)
    return due.posted


def _record(delivery: Delivery, due: _Due, posted: Posted) -> None:
    with delivery.database.transaction() as session:
        thread = session.get_one(SlackThread, (due.run_id, due.channel), with_for_update=True)
        thread.channel_id, thread.ts = posted.channel, posted.ts
        thread.seq, thread.digest, thread.error = due.seq, due.digest, None
        thread.next_update_at = (
            None if due.period_s is None else delivery.clock() + timedelta(seconds=due.period_s)
        )


def _wait(delivery: Delivery, due: _Due, *, seconds: float) -> None:
    """Postpone every update that is due by then: Slack limits them together."""
    until = delivery.clock() + timedelta(seconds=seconds)
    is_due = SlackThread.next_update_at <= until
    mine = (SlackThread.run_id == due.run_id) & (SlackThread.channel == due.channel)
    with delivery.database.transaction() as session:
        session.execute(update(SlackThread).where(or_(is_due, mine)).values(next_update_at=until))


def _fail(delivery: Delivery, due: _Due, why: str, *, again_s: float | None) -> None:
    log.warning("live message of %s in %s not sent: %s", due.run_id, due.channel, why)
    with delivery.database.transaction() as session:
        thread = session.get_one(SlackThread, (due.run_id, due.channel), with_for_update=True)
        thread.error = why
        thread.next_update_at = (
            None if again_s is None else delivery.clock() + timedelta(seconds=again_s)
        )
