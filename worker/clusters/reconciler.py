"""One tick of one cluster: take its lease, decide and act without a session, write under the epoch.

May be called twice, or by two workers at once: one gets the lease, and a late write-back under an
old epoch is dropped. May be cut off after any action: what was asked for is found again by name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import ValidationError

from api.clusters import leases
from api.clusters.secrets import BadNodeSecrets
from api.runs import store
from api.runs.errors import LeaseLost
from api.runs.journal import utc_now
from api.tables import Cluster
from worker.clusters import mailbox, rows
from worker.clusters.base import CloudError, Clouds, ClusterPlan, ErrorKind
from worker.clusters.consequences import announce, conclude, warn_of_stuck
from worker.clusters.decide import (
    SOON,
    Action,
    AskDown,
    AskDownFault,
    AskJobs,
    AskLaunches,
    AskRequest,
    CancelDuplicates,
    CloudAction,
    End,
    Launch,
    Look,
    Record,
    Wait,
    decide,
    is_stuck,
)
from worker.clusters.fold import begin, enact, learn
from worker.clusters.perform import perform
from worker.clusters.plans import plan_for
from worker.clusters.view import Cause, ClusterState, ClusterView, Recorded, Reported
from worker.clusters.wheel import NoWheel
from worker.parts import Parts

Clock = Callable[[], datetime]
log = logging.getLogger(__name__)

MAX_ACTIONS = 20
"""A tick that takes more would never end: the next one goes on."""
TICK_S = 90.0
"""After which a tick lets the next one go on: a task is ended after `CLOUD_TASK_LIMIT_S`."""
FRESH = timedelta(seconds=10)
"""A lease taken so lately lasts over one call."""
OF_SILENCE = (Cause.CLUSTER_LOST, Cause.JOB_ENDED)
"""Concluded because nothing was heard: a node that cannot speak may have left a note."""
CLOUD_ACTIONS = (
    *(AskLaunches, Look, AskJobs, AskRequest, Launch, CancelDuplicates, AskDown, AskDownFault),
)


@dataclass(slots=True)
class _Tick:
    """The cluster under its lease; `view` is what is known by now."""

    parts: Parts
    clouds: Clouds
    clock: Clock
    cluster_id: str
    run_id: str
    epoch: int
    held_at: datetime
    """When the lease was taken, or renewed last."""
    view: ClusterView
    told: ClusterState
    """Its state as the run was told of it, and as it is written down."""
    _plan: ClusterPlan | None = None

    def plan(self) -> ClusterPlan:
        """What is asked of the clouds; made when it is needed, which for most ticks it is not.

        Raises CloudError where the operator's settings or an older spec give none.
        """
        if self._plan is None:
            renting, now = self.parts.renting, self.clock()
            assert renting is not None, "a cluster where nobody rents any"
            try:
                options = renting.options()
                with self.parts.database.transaction() as session:
                    cluster = session.get_one(Cluster, self.cluster_id)
                    self._plan = plan_for(session, cluster, options, now=now)
            except (NoWheel, BadNodeSecrets, ValidationError) as error:
                told = f"nothing could be launched: {error}"
                log.error("%s: %s", self.view.name, told)  # noqa: TRY400 - the words say it all
                raise CloudError(ErrorKind.SETUP_FAILED, told) from error
        return self._plan

    def renew(self) -> None:
        """Keep the lease over one more call, however slow the calls before were.

        Raises LeaseLost.
        """
        now = self.clock()
        if now - self.held_at <= FRESH:
            return
        with self.parts.database.transaction() as session:
            leases.renew(session, self.cluster_id, self.epoch, now=now)
        self.held_at = now

    def commit(self, *, due_at: datetime | None, is_over: bool) -> None:
        """Write the view, and what it means for the run; raises LeaseLost.

        Where the run is to be told, it is locked first, then the cluster: everybody's order.
        """
        now = self.clock()
        with self.parts.database.transaction() as session:
            is_news = self.view.state is not self.told
            run = store.lock_run(session, self.run_id) if is_news else None
            cluster = leases.hold(session, self.cluster_id, self.epoch)
            conclude(session, run, cluster, self.view, now=now)
            if is_over:
                leases.release(cluster, due_at=due_at)
        self.told = self.view.state


def reconcile(parts: Parts, clouds: Clouds, cluster_id: str, *, clock: Clock = utc_now) -> bool:
    """Take every step the cluster needs now; False when someone else holds it or it is gone."""
    now = clock()
    with parts.database.transaction() as session:
        cluster = leases.claim(session, cluster_id, now=now)
        if cluster is None:
            return False
        (view,) = rows.read(session, [cluster])
        tick = _Tick(
            parts=parts,
            clouds=clouds,
            clock=clock,
            cluster_id=cluster_id,
            run_id=cluster.run_id,
            epoch=cluster.epoch,
            held_at=now,
            view=begin(view),
            told=view.state,
        )
    try:
        pause = _work(tick)
        is_gone = tick.view.state is ClusterState.GONE
        tick.commit(due_at=None if is_gone else clock() + pause, is_over=True)
    except LeaseLost as error:
        log.info("dropped what was found out: %s", error)
        return False
    return True


def _work(tick: _Tick) -> timedelta:
    """Act until there is nothing to do; returns when to look again."""
    deadline = time.monotonic() + TICK_S
    for _ in range(MAX_ACTIONS):
        state, action = tick.view.state, _next(tick)
        if isinstance(action, Wait):
            _wait(tick, action)
            return action.pause
        if isinstance(action, Record):
            tick.view = learn(tick.view, Recorded(), tick.clock())
            tick.commit(due_at=None, is_over=False)
        elif isinstance(action, CLOUD_ACTIONS):
            tick.view = _ask(tick, action)
        else:
            tick.view = enact(tick.view, action, tick.clock())
            if tick.view.state is ClusterState.GONE:
                return timedelta(0)
        if tick.view.state is not state:
            # The rest of the tick may take minutes, and is lost with its worker.
            tick.commit(due_at=None, is_over=False)
        if time.monotonic() > deadline:
            break
    return timedelta(0)


def _wait(tick: _Tick, action: Wait) -> None:
    """Note what is waited for; a cluster that does not go is told of."""
    tick.view, now = replace(tick.view, waits_for=action.why), tick.clock()
    if is_stuck(tick.view, now):
        warn_of_stuck(tick.parts, tick.cluster_id, tick.epoch, action.why or "", now=now)


def _next(tick: _Tick) -> Action:
    """What to do next; a node is not given up for its silence before its notes were looked for.

    The clouds may have taken a minute to answer: it may have been heard meanwhile.
    """
    action = decide(tick.view, tick.clock())
    if not isinstance(action, End) or action.cause not in OF_SILENCE:
        return action
    heard_at = tick.view.node_heard_at
    if mailbox.has_word(tick.parts, tick.cluster_id, since=heard_at, now=tick.clock()):
        return Wait(SOON, "the node was heard just now")
    return action


def _ask(tick: _Tick, action: CloudAction) -> ClusterView:
    tick.renew()
    fact = perform(action, tick.clouds, tick.view.name, tick.plan)
    if isinstance(fact, Reported):
        announce(tick.parts, tick.cluster_id, tick.epoch, fact.report, now=tick.clock())
    return learn(tick.view, fact, tick.clock())
