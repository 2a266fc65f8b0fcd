"""Where a run stands that waits for a runner or a cluster: its place, and why it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.clusters.asking import Never, may_ask
from api.runs import slots, store
from api.runs.lanes import Lane, lane_of
from api.runs.light import kind_of
from api.runs.slots import Places
from api.tables import Run
from trainer.contract.spec import LIGHT_KINDS, RUN_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place among the runs of a project that wait for the same kind of slot."""

    position: int
    """1 is next; a run further back goes before where only it can use the place that is free."""
    reason: str | None
    """Why a run at this place waits; null when its turn is now."""


def place_of(session: Session, run: Run, *, now: datetime) -> Place:
    """Return the place of a run that waits.

    Runs that recover go first: they have something to lose. Light runs and the others are in
    nobody's way but their own; nor are runs of a kind that no runner carries out. A run whose turn
    it would be before this one, but which no runner with a free place carries out, is passed.
    """
    if lane_of(run) is Lane.CLUSTER:
        return _place_of_far(session, run, now=now)
    return _place(session, run.project_id, kind_of(run), before=run, now=now)


def _place_of_far(session: Session, run: Run, *, now: datetime) -> Place:
    """Return the place of a run that waits for a cluster of its own."""
    ahead = store.num_waiting_far(session, run.project_id, before=run, now=now)
    answer = may_ask(session, run, now=now)
    if answer is None and ahead >= clusters.num_free(session, run.project_id):
        return Place(position=1 + ahead, reason="Other runs come first.")
    why = None if answer is None else answer.message if isinstance(answer, Never) else answer.why
    return Place(position=1 + ahead, reason=why)


def place_of_next_far(session: Session, project_id: str, *, now: datetime) -> Place:
    """Return the place that a run on a cluster of its own would get if it were submitted now."""
    ahead = store.num_waiting_far(session, project_id, before=None, now=now)
    is_full = ahead >= clusters.num_free(session, project_id)
    why = "As many clusters as the project may have are in use or waited for." if is_full else None
    return Place(position=1 + ahead, reason=why)


def place_of_next(session: Session, project_id: str, kind: str, *, now: datetime) -> Place:
    """Return the place that a run of this kind would get if it were submitted now."""
    return _place(session, project_id, kind, before=None, now=now)


def _place(
    session: Session, project_id: str, kind: str, *, before: Run | None, now: datetime
) -> Place:
    known = slots.known_kinds(session, project_id, now=now)
    counted = (known or frozenset(RUN_KINDS)) | {kind}
    same = counted & LIGHT_KINDS if kind in LIGHT_KINDS else counted - LIGHT_KINDS
    ahead = store.num_waiting(session, project_id, same, before=before)
    position = 1 + ahead.total()
    if not known:
        return Place(position=position, reason="No runner is connected.")
    if kind not in known:
        return Place(
            position=position,
            reason=f"No connected runner carries out runs of kind {kind}: update one.",
        )
    places = slots.free_places(session, project_id, is_light=kind in LIGHT_KINDS, now=now)
    offered = slots.offered(session, project_id)
    offers = Counter({name: offered[name] for name in same})
    if _finds_place(kind, offers + ahead, places):
        return Place(position=position, reason=None)
    if _finds_place(kind, offers, places):
        return Place(position=position, reason="Other runs come first.")
    if kind in LIGHT_KINDS:
        why = f"As many runs of kind {kind} are under way as the runners take at once."
        return Place(position=position, reason=why)
    return Place(position=position, reason="All runner slots are in use.")


def _finds_place(kind: str, first: Counter[str], places: Sequence[Places]) -> bool:
    """Say whether one more of this kind gets a place that none of those `first` has use for."""
    return slots.num_served(first + Counter({kind: 1}), places) > slots.num_served(first, places)
