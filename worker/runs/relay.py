"""Brings events home that the trainer could not push: from its segments in the blob store.

Used while a trainer lives but is not heard, and for the tail of a dead attempt before its run is
finalised. Recording is idempotent, so meeting a late push does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.exc import DataError

from api.runs import store as runs
from api.runs.errors import AttemptSuperseded, UnsupportedSchema
from api.runs.journal import utc_now
from api.runs.record import record
from api.runs.status import AttemptState
from api.tables import Attempt, Run
from trainer.contract.events import EVENTS, Event
from trainer.contract.rundir import event_segment, run_key
from trainer.stores.base import BlobStore, StoreError
from worker.parts import Parts
from worker.resting import StoreResting

log = logging.getLogger(__name__)

BATCH = 200
"""Events recorded in one transaction."""
SILENCE_S = 10.0
"""A trainer that pushed nothing for this long may have been unable to."""
AT_ONCE = 50


def sweep(parts: Parts, *, now: datetime | None = None) -> int:
    """Fetch what silent trainers mirrored but could not push; returns how many events."""
    limit = (now or utc_now()) - timedelta(seconds=SILENCE_S)
    live = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)
    silent = (
        select(Attempt.run_id, Attempt.number, Attempt.last_trainer_seq)
        .join(Run, (Run.id == Attempt.run_id) & (Run.attempt == Attempt.number))
        .where(Attempt.state.in_(live))
        .where(func.coalesce(Attempt.last_event_at, Attempt.claimed_at) < limit)
        # By chance, so that many which stay silent cannot keep the others out.
        .order_by(func.random())
        .limit(AT_ONCE)
    )
    with parts.database.transaction() as session:
        found = session.execute(silent).all()
    num_events = 0
    for run_id, number, last in found:
        try:
            num_events += bring_home(parts, run_id, number, after=last)
        except StoreResting:
            break  # the others cannot be fetched either
        except StoreError as error:
            log.warning("the events of run %s cannot be fetched now: %s", run_id, error)
    return num_events


def bring_home(parts: Parts, run_id: str, attempt: int, *, after: int) -> int:
    """Record the attempt's mirrored events that follow `after`; returns how many were new.

    Each batch has a transaction of its own; none is open while the store is read. Events that
    cannot be recorded are left out: the run goes on without them at its deadline. Raises
    StoreError.
    """
    num_new = 0
    try:
        for batch in unseen_events(parts.store, run_id, attempt, after=after):
            num_new += _record(parts, run_id, attempt, batch)
    except (AttemptSuperseded, UnsupportedSchema, DataError) as error:
        log.warning("events of run %s attempt %d do not count: %s", run_id, attempt, error)
    if num_new:
        log.info("fetched %d events of run %s attempt %d", num_new, run_id, attempt)
    return num_new


def _record(parts: Parts, run_id: str, number: int, batch: Sequence[Event]) -> int:
    with parts.database.transaction() as session:
        run = runs.lock_run(session, run_id)
        attempt = runs.newest_attempt(session, run)
        if attempt is None or attempt.number != number:
            raise AttemptSuperseded(f"Attempt {run.attempt} owns run {run_id} now.")
        return record(session, run, attempt, batch, now=utc_now()).accepted


def unseen_events(
    store: BlobStore, run_id: str, attempt: int, *, after: int
) -> Iterator[Sequence[Event]]:
    """Yield the mirrored events that follow `after` without a gap, in batches.

    Reads segments from the newest backwards, only as far as needed. Raises StoreError.
    """
    wanted: list[list[Event]] = []
    for key in reversed(_segments(store, run_id, attempt)):
        events = _parse(store.get(key), key)
        wanted.append(events)
        if events and events[0].trainer_seq <= after + 1:
            break
    batch: list[Event] = []
    expected = after + 1
    for event in (event for segment in reversed(wanted) for event in segment):
        if event.trainer_seq == expected:
            batch.append(event)
            expected += 1
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _segments(store: BlobStore, run_id: str, attempt: int) -> Sequence[str]:
    folder = event_segment(attempt, 1).rpartition("/")[0]
    return store.list(run_key(run_id, folder))


def _parse(blob: bytes, key: str) -> list[Event]:
    """The events of a segment up to the first line that is none: what follows would be a gap."""
    events: list[Event] = []
    for line in blob.splitlines():
        try:
            events.append(EVENTS.validate_json(line))
        except ValidationError as error:
            log.warning("%s: line %d is no event: %s", key, len(events) + 1, error)
            break
    return events
