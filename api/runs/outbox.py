"""The outbox: messages are stored in the transaction of their event and delivered later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, exists, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from api.runs.deadlines import OUTBOX_LEASE_S
from api.runs.status import TERMINAL, RunStatus
from api.tables import ApiKey, OutboxMessage, ProjectMember, Run, SlackThread
from hillclimb.protocol.end_reasons import ReasonCode

PENDING = "pending"
DELIVERED = "delivered"
SKIPPED = "skipped"
DEAD = "dead"

_SUSPENDED = (RunStatus.PAUSED.value, RunStatus.RECOVERING.value)
_CLUSTER_REASONS = (
    ReasonCode.BUDGET_EXHAUSTED.value,
    ReasonCode.CLUSTER_TIME_UP.value,
    ReasonCode.CLUSTER_LOST.value,
    ReasonCode.LAUNCH_FAILED.value,
    ReasonCode.NODE_UNFIT.value,
    ReasonCode.PROVISION_TIMEOUT.value,
)
"""Lack of capacity sends no message: it may last for hours."""


CLUSTER_NOT_ENDED = "cluster_not_ended"
NO_PRICE = "no_price"
"""Codes of run warnings that are sent: a person has to act, and it costs money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A message that this worker delivers until its lease ends."""

    id: int
    run_id: str
    kind: str
    payload: dict[str, Any]
    num_attempts: int
    """Including this one."""
    owner: str


_KEYS = {
    "budget.warned": ("budget", "budget:{seq}"),
    "checkpoint.refused": ("refused", "refused:{path}"),
    "eval.completed": ("eval", "eval:{step}:{decoding}"),
    "guard.tripped": ("guard", "guard:{guard}:{number}"),
    "run.created": ("opened", "opened"),
    "trainer.started": ("started", "started"),
}
"""Kind and key of the events that always send a message."""


WEBHOOK_EVENTS = frozenset(
    {"run.created", "run.status_changed", "run.warning", "trainer.started", "eval.completed"}
    | {"probe.completed", "validation.completed", "checkpoint.saved", "checkpoint.refused"}
    | {"guard.tripped", "budget.warned"}
)
"""Types of the events that webhooks can receive: a few per evaluation, none per step."""


# Webhooks are locked against deletion: a missing row would refuse the message, and the event too.
TO_WEBHOOKS = f"""
INSERT INTO outbox
  (project_id, run_id, webhook_id, kind, dedupe_key, payload, state, num_attempts)
SELECT webhooks.project_id, stored.run_id, webhooks.id, stored.type,
       'webhook:' || webhooks.id || ':' || stored.run_id || ':' || stored.seq,
       jsonb_build_object('webhook_id', webhooks.id, 'seq', stored.seq), '{PENDING}', 0
FROM stored JOIN webhooks
  ON cardinality(webhooks.events) = 0 OR webhooks.events @> ARRAY[stored.type]
WHERE webhooks.project_id = %s::varchar AND webhooks.is_enabled
  AND stored.type IN ({", ".join(f"'{each}'" for each in sorted(WEBHOOK_EVENTS))})
ORDER BY stored.seq, webhooks.id
FOR KEY SHARE OF webhooks
ON CONFLICT (dedupe_key) DO NOTHING
"""
"""Stores a message for each webhook of the project (the parameter) and each event that it receives,
of those that the same statement has `stored`."""


def enqueue_for_event(
    session: Session, run: Run, *, seq: int, event_type: str, data: Mapping[str, Any]
) -> None:
    """Store the event's messages to the run's Slack channels; `TO_WEBHOOKS` stores the others.

    The channels are that of the spec, and those that watch the run.

    Called in the event's transaction. Idempotent, also for an eval that a later attempt repeats.
    """
    kind_and_key = _kind_and_key(event_type, data, seq=seq)
    if event_type == "run.status_changed" and data["to"] == RunStatus.PROVISIONING.value:
        # A runner's slot is there at once; machines take minutes.
        is_rented = run.spec["backend"]["type"] == "skypilot"
        kind_and_key = ("provisioning", f"provisioning:{seq}") if is_rented else None
    if kind_and_key is None:
        return
    kind, key = kind_and_key
    # Nobody can watch a run that does not exist before this transaction.
    channels = _own_channel(run) if event_type == "run.created" else channels_of(session, run)
    for number, channel in enumerate(channels):
        session.execute(
            insert(OutboxMessage)
            .values(
                project_id=run.project_id,
                run_id=run.id,
                kind=kind,
                dedupe_key=f"slack:{run.id}:{key}" + (f":{channel}" if number else ""),
                payload={"channel": channel, "seq": seq},
                state=PENDING,
                num_attempts=0,
            )
            .on_conflict_do_nothing(index_elements=[OutboxMessage.dedupe_key])
        )


def channels_of(session: Session, run: Run) -> tuple[str, ...]:
    """Return the channels that get messages about the run: that of the spec, then watching ones."""
    own = _own_channel(run)
    query = select(SlackThread.channel).where(SlackThread.run_id == run.id, may_watch())
    watching = session.scalars(query.order_by(SlackThread.created_at, SlackThread.channel))
    return (*own, *(each for each in watching if each not in own))


def _own_channel(run: Run) -> tuple[str, ...]:
    slack = run.spec.get("notify", {}).get("slack")
    return () if slack is None else (str(slack["channel"]),)


def may_watch() -> ColumnElement[bool]:
    """A condition on `SlackThread`: the key by which the channel watches is valid.

    Whoever was removed from the project would else go on reading about its runs.
    """
    is_member = exists().where(
        ProjectMember.project_id == ApiKey.project_id, ProjectMember.person_id == ApiKey.person_id
    )
    is_valid = exists().where(
        ApiKey.id == SlackThread.watcher,
        ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now()),
        or_(ApiKey.person_id.is_(None), is_member),
    )
    return or_(SlackThread.watcher.is_(None), is_valid)


def _kind_and_key(event_type: str, data: Mapping[str, Any], *, seq: int) -> tuple[str, str] | None:
    """Return the kind of the event's message and its unique key within the run."""
    if event_type in _KEYS:
        kind, key = _KEYS[event_type]
        return kind, key.format_map({**data, "seq": seq})
    if event_type == "run.warning" and data.get("code") in (CLUSTER_NOT_ENDED, NO_PRICE):
        return "warning", f"warning:{seq}"
    if event_type == "run.status_changed" and _is_about_cluster(data):
        return "machines", f"machines:{seq}"
    if event_type == "run.status_changed" and data["to"] in TERMINAL:
        return "ended", "ended"
    return None


def _is_about_cluster(data: Mapping[str, Any]) -> bool:
    """Return True when a run lost its cluster, or was paused by a budget or time limit."""
    code = (data.get("reason") or {}).get("code")
    return data["to"] in _SUSPENDED and code in _CLUSTER_REASONS


def claim_next(session: Session, *, owner: str, now: datetime) -> Claim | None:
    """Claim the oldest due message to Slack, none of its run and channel pending before it."""
    earlier = aliased(OutboxMessage)
    blocked = exists().where(
        earlier.run_id == OutboxMessage.run_id,
        earlier.webhook_id.is_(None),
        earlier.state == PENDING,
        earlier.payload["channel"].astext == OutboxMessage.payload["channel"].astext,
        earlier.id < OutboxMessage.id,
    )
    return _claim(session, OutboxMessage.webhook_id.is_(None), ~blocked, owner=owner, now=now)


def claim_next_of_webhooks(session: Session, *, owner: str, now: datetime) -> Claim | None:
    """Claim the oldest due message to a webhook that has none under way."""
    other = aliased(OutboxMessage)
    busy = exists().where(
        other.webhook_id == OutboxMessage.webhook_id,
        other.state == PENDING,
        other.lease_until > now,
    )
    return _claim(session, OutboxMessage.webhook_id.is_not(None), ~busy, owner=owner, now=now)


def _claim(
    session: Session, *where: ColumnElement[bool], owner: str, now: datetime
) -> Claim | None:
    message = session.scalar(
        select(OutboxMessage)
        .where(
            OutboxMessage.state == PENDING,
            OutboxMessage.next_attempt_at <= now,
            or_(OutboxMessage.lease_until.is_(None), OutboxMessage.lease_until < now),
            *where,
        )
        .order_by(OutboxMessage.id)
        .limit(1)
        .with_for_update(skip_locked=True, key_share=True)
    )
    if message is None:
        return None
    message.lease_owner = owner
    message.lease_until = now + timedelta(seconds=OUTBOX_LEASE_S)
    message.num_attempts += 1
    return Claim(
        id=message.id,
        run_id=message.run_id,
        kind=message.kind,
        payload=message.payload,
        num_attempts=message.num_attempts,
        owner=owner,
    )


def find_claimed(session: Session, claim: Claim) -> OutboxMessage | None:
    """Return the claimed message, locked; None when another worker has claimed it since."""
    return session.scalar(
        select(OutboxMessage)
        .where(
            OutboxMessage.id == claim.id,
            OutboxMessage.state == PENDING,
            OutboxMessage.lease_owner == claim.owner,
            OutboxMessage.num_attempts == claim.num_attempts,
        )
        .with_for_update(key_share=True)
    )
