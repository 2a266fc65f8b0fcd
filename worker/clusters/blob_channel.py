"""The service's side of the blob-store channel: messages to and from a cluster's first node.

For nodes that cannot reach the API, and for those that could and are silent. It carries the plan,
heartbeats, the end report and the stop request (`hillclimb.protocol.node_messages`); the events of
trainers come through `worker.runs.relay`. Reading a message twice changes nothing, and none is read
or written inside a transaction: a slow store must not hold database locks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.clusters.store import ClusterState, uses_blob_channel
from api.runs import store
from api.runs.errors import AttemptNotFound, AttemptSuperseded
from api.runs.journal import utc_now
from api.runs.status import AttemptState
from api.scheduling.attempts import scheduled_traceparent
from api.scheduling.outages import extensions
from api.scheduling.rented import nodes
from api.scheduling.rented.bootstrap import UNDER_WAY, admit, node_plan, reaches_api
from api.tables import Attempt, Cluster, Run
from hillclimb.blobs.base import BlobMissing, StoreError
from hillclimb.protocol.launch import Action, NodePlan
from hillclimb.protocol.node_messages import NodeAlive, NodeClaim, NodeEnd, NodeStop
from hillclimb.protocol.rundir import NodeFile, node_file, run_key
from worker.circuit_breaker import CircuitOpen
from worker.clusters import rows
from worker.context import WorkerContext
from worker.deadlines import BLOB_CHANNEL_SILENCE

log = logging.getLogger(__name__)

BATCH = 50
"""Half of a batch are the channels that were silent longest, which takes turns; half are drawn at
random, so that many which stay silent cannot starve the others."""
Message = TypeVar("Message", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel:
    """One cluster's channel, with the messages to write to its node."""

    cluster_id: str
    attempt_id: str
    run_id: str
    attempt: int
    is_claimed: bool
    is_ended: bool
    plan: NodePlan | None
    """The plan to write: no job has claimed it, and its nodes cannot claim it at the API."""
    action: Action | None

    def key(self, name: NodeFile) -> str:
        """Return the blob key of a message."""
        return run_key(self.run_id, node_file(self.attempt, name))


def sweep(context: WorkerContext, *, now: datetime | None = None) -> int:
    """Exchange messages with the nodes of one batch of channels; returns the batch's size."""
    now = now or utc_now()
    with context.database.transaction() as session:
        channels = _silent_channels(session, now=now)
    is_store_down = False
    for channel in channels:
        try:
            _exchange(context, channel, now=now)
        except CircuitOpen:
            is_store_down = True
            break  # the same store has the other channels
        except StoreError as error:
            is_store_down = True
            log.warning("the blob channel of run %s cannot be reached: %s", channel.run_id, error)
        except (AttemptSuperseded, AttemptNotFound) as error:
            log.warning("a message of run %s is ignored: %s", channel.run_id, error)
    if is_store_down:
        _extend_deadlines(context, now=now)
    return len(channels)


def _extend_deadlines(context: WorkerContext, *, now: datetime) -> None:
    """Extend the deadlines of runs on this channel: their silence may be the store's fault."""
    with context.database.transaction() as session:
        num_extended = extensions.extend_deadlines_while_store_down(session, now=now)
    if num_extended:
        log.warning("blob channels cannot be read: deadlines of %d runs extended", num_extended)


def may_be_alive(
    context: WorkerContext, cluster_id: str, *, since: datetime | None, now: datetime
) -> bool:
    """Read one cluster's channel; True where its node must not be given up now.

    That is: it has sent a heartbeat after `since`, over either transport, or its attempt has ended
    with a report, or the store does not answer.
    """
    with context.database.transaction() as session:
        channel = _channel(
            session, *session.execute(_CLUSTERS.where(Cluster.id == cluster_id)).one()
        )
    try:
        _exchange(context, channel, now=now)
    except StoreError as error:
        log.warning("the blob channel of run %s cannot be reached: %s", channel.run_id, error)
        return True
    except (AttemptSuperseded, AttemptNotFound) as error:
        log.warning("a message of run %s is ignored: %s", channel.run_id, error)
    with context.database.transaction() as session:
        attempt = store.get_attempt(session, channel.attempt_id)
        return rows.last_heartbeat_at(attempt) != since or attempt.state == AttemptState.ENDED.value


_CLUSTERS = (
    select(Cluster, Attempt, Run)
    .join(Attempt, Attempt.id == Cluster.attempt_id)
    .join(Run, Run.id == Cluster.run_id)
)


def _silent_channels(session: Session, *, now: datetime) -> Sequence[_Channel]:
    """Return channels of live clusters whose first node uses them, or is silent elsewhere."""
    live = (*UNDER_WAY, ClusterState.TERMINATING.value)
    silent = _CLUSTERS.where(Cluster.state.in_(live)).where(
        uses_blob_channel() | (Attempt.last_held_at < now - BLOB_CHANNEL_SILENCE)
    )
    channels: dict[str, _Channel] = {}
    for order in (Attempt.last_held_at.nulls_last(), func.random()):
        for row in session.execute(silent.order_by(order).limit(BATCH // 2)):
            channel = _channel(session, *row)
            channels[channel.cluster_id] = channel
    return list(channels.values())


def _channel(session: Session, cluster: Cluster, attempt: Attempt, run: Run) -> _Channel:
    is_claimed = cluster.bootstrap_nonce is not None
    is_ended = attempt.state == AttemptState.ENDED.value
    return _Channel(
        cluster_id=cluster.id,
        attempt_id=attempt.id,
        run_id=run.id,
        attempt=attempt.number,
        is_claimed=is_claimed,
        is_ended=is_ended,
        plan=None if is_claimed or is_ended else _plan(session, run, attempt),
        action=nodes.requested_action(attempt),
    )


def _plan(session: Session, run: Run, attempt: Attempt) -> NodePlan | None:
    """Return the plan of a node that cannot reach the API; None for one that can."""
    plan = node_plan(session, run, attempt)
    traceparent = scheduled_traceparent(session, run, attempt)
    return None if reaches_api(plan.spec) else plan.model_copy(update={"traceparent": traceparent})


def _exchange(context: WorkerContext, channel: _Channel, *, now: datetime) -> None:
    """Write the plan and the stop request; read claim, heartbeat and end. Raises StoreError."""
    # A job may have claimed the plan just before its attempt ended: it must get the stop as well.
    if (
        not channel.is_claimed
        and not channel.is_ended
        and not _read_claim(context, channel, now=now)
    ):
        return
    if channel.action is not None:
        stop = NodeStop(action=channel.action)
        if _read(context, channel, "stop", NodeStop) != stop:
            context.store.put(channel.key("stop"), stop.model_dump_json().encode())
    if channel.is_ended:
        return
    alive = _read(context, channel, "alive", NodeAlive)
    if alive is not None:
        with context.database.transaction() as session:
            nodes.record_heartbeat(session, channel.cluster_id, alive, now=now)
    end = _read(context, channel, "end", NodeEnd)
    if end is not None:
        with context.database.transaction() as session:
            nodes.record_end(session, channel.cluster_id, end, now=now)


def _read_claim(context: WorkerContext, channel: _Channel, *, now: datetime) -> bool:
    """Give the attempt to the job that has claimed the plan; False when none has."""
    if channel.plan is None:
        return False
    claim = _read(context, channel, "claim", NodeClaim)
    if claim is None:
        context.store.put_if_absent(channel.key("plan"), channel.plan.model_dump_json().encode())
        return False
    with context.database.transaction() as session:
        admit(session, channel.attempt_id, claim.nonce, now=now)
    return True


def _read(
    context: WorkerContext, channel: _Channel, name: NodeFile, model: type[Message]
) -> Message | None:
    """Return a message; None where there is none, or one that does not parse."""
    try:
        return model.model_validate_json(context.store.get(channel.key(name)))
    except BlobMissing:
        return None
    except ValidationError as error:
        log.warning("%s is no message: %d mistakes", channel.key(name), error.error_count())
        return None
