"""The service's side of the notes that a cluster's first node leaves in the blob store.

For nodes that cannot reach the API, and for those that could and are not heard. What trainers wrote
comes home by `worker.relay`; here are the plan, the beats, the end, and what is wanted. Reading a
note twice changes nothing, and none is read or written inside a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.clusters import nodes
from api.clusters.exchange import UNDER_WAY, admit, node_plan, reaches_api
from api.clusters.store import ClusterState, speaks_by_notes
from api.runs import absence, store
from api.runs.errors import AttemptNotFound, AttemptSuperseded
from api.runs.journal import utc_now
from api.runs.status import AttemptState
from api.tables import Attempt, Cluster, Run
from trainer.contract.launch import Action, NodePlan
from trainer.contract.node import NodeAlive, NodeEnd, NodeStop, NodeTaken
from trainer.contract.rundir import NodeFile, node_file, run_key
from trainer.stores.base import BlobMissing, StoreError
from worker.clusters import rows
from worker.parts import Parts
from worker.resting import StoreResting

log = logging.getLogger(__name__)

SILENCE = timedelta(seconds=20)
"""A node that could speak and did not for so long may have left a note."""
AT_ONCE = 50
"""Half of them those that were not heard for longest, which takes turns; half by chance, so that
many which stay silent cannot keep the others out."""
Note = TypeVar("Note", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """One cluster's notes, and what is to be left for it."""

    cluster_id: str
    attempt_id: str
    run_id: str
    attempt: int
    is_taken: bool
    is_ended: bool
    plan: NodePlan | None
    """To be written: nobody has taken it, and its nodes cannot ask for it."""
    action: Action | None

    def key(self, name: NodeFile) -> str:
        """Return the blob key of a note."""
        return run_key(self.run_id, node_file(self.attempt, name))


def sweep(parts: Parts, *, now: datetime | None = None) -> int:
    """Read what nodes have left and leave what is wanted; returns how many were looked after."""
    now = now or utc_now()
    with parts.database.transaction() as session:
        boxes = _boxes(session, now=now)
    is_away = False
    for box in boxes:
        try:
            _look(parts, box, now=now)
        except StoreResting:
            is_away = True
            break  # the others cannot be reached either
        except StoreError as error:
            is_away = True
            log.warning("the notes of run %s cannot be reached now: %s", box.run_id, error)
        except (AttemptSuperseded, AttemptNotFound) as error:
            log.warning("a note of run %s does not count: %s", box.run_id, error)
    if is_away:
        _hold(parts, now=now)
    return len(boxes)


def _hold(parts: Parts, *, now: datetime) -> None:
    """Let no trainer be at fault for a store that cannot be read."""
    with parts.database.transaction() as session:
        num_held = absence.hold_unread(session, now=now)
    if num_held:
        log.warning("notes cannot be read: the deadlines of %d runs are moved on", num_held)


def has_word(parts: Parts, cluster_id: str, *, since: datetime | None, now: datetime) -> bool:
    """Look once for what one cluster's node has left; say whether it is not to be judged now.

    It was heard after `since`, in whatever way, or has told its end, or the store cannot be asked.
    """
    with parts.database.transaction() as session:
        box = _box(*session.execute(_CLUSTERS.where(Cluster.id == cluster_id)).one())
    try:
        _look(parts, box, now=now)
    except StoreError as error:
        log.warning("the notes of run %s cannot be reached now: %s", box.run_id, error)
        return True
    except (AttemptSuperseded, AttemptNotFound) as error:
        log.warning("a note of run %s does not count: %s", box.run_id, error)
    with parts.database.transaction() as session:
        attempt = store.get_attempt(session, box.attempt_id)
        return rows.heard_at(attempt) != since or attempt.state == AttemptState.ENDED.value


_CLUSTERS = (
    select(Cluster, Attempt, Run)
    .join(Attempt, Attempt.id == Cluster.attempt_id)
    .join(Run, Run.id == Cluster.run_id)
)


def _boxes(session: Session, *, now: datetime) -> Sequence[_Box]:
    """Clusters that are not gone, whose first node has to be heard in this way."""
    live = (*UNDER_WAY, ClusterState.ENDING.value)
    silent = _CLUSTERS.where(Cluster.state.in_(live)).where(
        speaks_by_notes() | (Attempt.last_held_at < now - SILENCE)
    )
    found: dict[str, _Box] = {}
    for order in (Attempt.last_held_at.nulls_last(), func.random()):
        for each in session.execute(silent.order_by(order).limit(AT_ONCE // 2)):
            box = _box(*each)
            found[box.cluster_id] = box
    return list(found.values())


def _box(cluster: Cluster, attempt: Attempt, run: Run) -> _Box:
    is_taken = cluster.exchange_nonce is not None
    is_ended = attempt.state == AttemptState.ENDED.value
    return _Box(
        cluster_id=cluster.id,
        attempt_id=attempt.id,
        run_id=run.id,
        attempt=attempt.number,
        is_taken=is_taken,
        is_ended=is_ended,
        plan=None if is_taken or is_ended else _plan(run, attempt),
        action=nodes.wanted(attempt),
    )


def _plan(run: Run, attempt: Attempt) -> NodePlan | None:
    """What is left for a node that cannot ask; None for one that can."""
    plan = node_plan(run, attempt)
    return None if reaches_api(plan.spec) else plan


def _look(parts: Parts, box: _Box, *, now: datetime) -> None:
    # The plan of an attempt that is over may have been taken just before: that job is told, too.
    if not box.is_taken and not box.is_ended and not _admit(parts, box, now=now):
        return
    if box.action is not None:
        stop = NodeStop(action=box.action)
        if _read(parts, box, "stop", NodeStop) != stop:
            parts.store.put(box.key("stop"), stop.model_dump_json().encode())
    if box.is_ended:
        return
    alive = _read(parts, box, "alive", NodeAlive)
    if alive is not None:
        with parts.database.transaction() as session:
            nodes.beat(session, box.cluster_id, alive, now=now)
    end = _read(parts, box, "end", NodeEnd)
    if end is not None:
        with parts.database.transaction() as session:
            nodes.read_end(session, box.cluster_id, end, now=now)


def _admit(parts: Parts, box: _Box, *, now: datetime) -> bool:
    """Give the attempt to the job that has taken the plan; False when none has."""
    if box.plan is None:
        return False
    taken = _read(parts, box, "taken", NodeTaken)
    if taken is None:
        parts.store.put_if_absent(box.key("plan"), box.plan.model_dump_json().encode())
        return False
    with parts.database.transaction() as session:
        admit(session, box.attempt_id, taken.nonce, now=now)
    return True


def _read(parts: Parts, box: _Box, name: NodeFile, model: type[Note]) -> Note | None:
    """Return a note; None where there is none, or one that cannot be read."""
    try:
        return model.model_validate_json(parts.store.get(box.key(name)))
    except BlobMissing:
        return None
    except ValidationError as error:
        log.warning("%s is no note: %d mistakes", box.key(name), error.error_count())
        return None
