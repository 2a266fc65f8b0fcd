"""Reconciles one cluster: takes its lease, executes actions without a session, writes by epoch.

May be called twice, or by two workers at once: one gets the lease, and a late write under an old
epoch is dropped. May be cut off after any action: the next tick finds launches and machines by the
cluster's name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import ValidationError

from api.clusters import leases
from api.clusters.secrets import InvalidNodeSecrets
from api.runs import store
from api.runs.errors import LeaseLost
from api.runs.journal import utc_now
from api.tables import Cluster
from api.tables.access.secrets.errors import SecretsError
from worker.clusters import blob_channel, rows
from worker.clusters.decide import (
    Action,
    CancelDuplicates,
    CloudAction,
    GetCluster,
    GetLaunch,
    GetTerminationFault,
    LaunchCluster,
    ListJobs,
    ListLaunches,
    MarkTerminating,
    RecordLaunch,
    TerminateCluster,
    Wait,
    decide,
    is_termination_overdue,
)
from worker.clusters.execute import execute
from worker.clusters.plans import plan_for
from worker.clusters.run_effects import apply_to_run, record_offers, warn_termination_overdue
from worker.clusters.transitions import apply_observation, apply_transition, begin
from worker.clusters.view import Cause, ClusterState, ClusterView, LaunchRecorded, LaunchReported
from worker.context import WorkerContext
from worker.deadlines import LEASE_FRESHNESS, RECHECK_SOON, RECONCILE_TICK_S
from worker.skypilot.port import CloudError, Clouds, ClusterPlan, ErrorKind
from worker.skypilot.wheel import NoWheel

Clock = Callable[[], datetime]
log = logging.getLogger(__name__)

MAX_ACTIONS = 20
"""Bound of one tick: a decision that loops must not hold the lease for ever."""
SILENCE_CAUSES = (Cause.CLUSTER_LOST, Cause.JOB_ENDED)
"""Concluded from a node's silence: a node that cannot reach the API may have written to the blob
store."""
CLOUD_ACTIONS = (
    *(
        ListLaunches,
        GetCluster,
        ListJobs,
        GetLaunch,
        LaunchCluster,
        CancelDuplicates,
        TerminateCluster,
        GetTerminationFault,
    ),
)


@dataclass(slots=True)
class _Tick:
    """A leased cluster during one tick; `view` has everything observed so far."""

    context: WorkerContext
    clouds: Clouds
    clock: Clock
    cluster_id: str
    run_id: str
    epoch: int
    leased_at: datetime
    """When the lease was claimed, or last renewed."""
    view: ClusterView
    committed_state: ClusterState
    """Its state in the database, which the run's events report."""
    _plan: ClusterPlan | None = None

    def plan(self) -> ClusterPlan:
        """Return the launch plan, made on first use: most ticks need none.

        Raises CloudError where the operator's settings or an older spec allow no plan.
        """
        if self._plan is None:
            cloud_provider, now = self.context.cloud_provider, self.clock()
            assert cloud_provider is not None, "a cluster without a cloud provider"
            try:
                options = cloud_provider.options()
                with self.context.database.transaction() as session:
                    cluster = session.get_one(Cluster, self.cluster_id)
                    self._plan = plan_for(session, cluster, options, now=now)
            except (NoWheel, InvalidNodeSecrets, SecretsError, ValidationError) as error:
                message = f"the launch cannot be prepared: {error}"
                log.error("%s: %s", self.view.name, message)  # noqa: TRY400 - a setting is wrong
                raise CloudError(ErrorKind.SETUP_FAILED, message) from error
        return self._plan

    def renew(self) -> None:
        """Extend the lease to cover one more call, however slow the earlier ones were.

        Raises LeaseLost.
        """
        now = self.clock()
        if now - self.leased_at <= LEASE_FRESHNESS:
            return
        with self.context.database.transaction() as session:
            leases.renew(session, self.cluster_id, self.epoch, now=now)
        self.leased_at = now

    def commit(self, *, due_at: datetime | None, is_over: bool) -> None:
        """Write the view to the row and apply a new state to the run. Raises LeaseLost.

        The run is locked before the cluster, as everywhere: the other order would deadlock.
        """
        now = self.clock()
        with self.context.database.transaction() as session:
            is_new_state = self.view.state is not self.committed_state
            run = store.lock_run(session, self.run_id) if is_new_state else None
            cluster = leases.hold(session, self.cluster_id, self.epoch)
            apply_to_run(session, run, cluster, self.view, now=now)
            if is_over:
                leases.release(cluster, due_at=due_at)
        self.committed_state = self.view.state


def reconcile(
    context: WorkerContext, clouds: Clouds, cluster_id: str, *, clock: Clock = utc_now
) -> bool:
    """Take every action due for the cluster; False when it is leased elsewhere or deleted."""
    now = clock()
    with context.database.transaction() as session:
        cluster = leases.claim(session, cluster_id, now=now)
        if cluster is None:
            return False
        (view,) = rows.read(session, [cluster])
        tick = _Tick(
            context=context,
            clouds=clouds,
            clock=clock,
            cluster_id=cluster_id,
            run_id=cluster.run_id,
            epoch=cluster.epoch,
            leased_at=now,
            view=begin(view),
            committed_state=view.state,
        )
    try:
        pause = _work(tick)
        is_gone = tick.view.state is ClusterState.TERMINATED
        tick.commit(due_at=None if is_gone else clock() + pause, is_over=True)
    except LeaseLost as error:
        log.info("dropped a tick's result: %s", error)
        return False
    return True


def _work(tick: _Tick) -> timedelta:
    """Execute actions until one is `Wait`; returns the time until the next tick."""
    deadline = time.monotonic() + RECONCILE_TICK_S
    for _ in range(MAX_ACTIONS):
        state, action = tick.view.state, _next_action(tick)
        if isinstance(action, Wait):
            _wait(tick, action)
            return action.pause
        if isinstance(action, RecordLaunch):
            tick.view = apply_observation(tick.view, LaunchRecorded(), tick.clock())
            tick.commit(due_at=None, is_over=False)
        elif isinstance(action, CLOUD_ACTIONS):
            tick.view = _execute(tick, action)
        else:
            tick.view = apply_transition(tick.view, action, tick.clock())
            if tick.view.state is ClusterState.TERMINATED:
                return timedelta(0)
        if tick.view.state is not state:
            # Commit now: the remaining calls may take minutes, and the worker may die in them.
            tick.commit(due_at=None, is_over=False)
        if time.monotonic() > deadline:
            break
    return timedelta(0)


def _wait(tick: _Tick, action: Wait) -> None:
    """Store the status reason; warn the run once of a termination that is overdue."""
    tick.view, now = replace(tick.view, status_reason=action.why), tick.clock()
    if is_termination_overdue(tick.view, now):
        warn_termination_overdue(
            tick.context, tick.cluster_id, tick.epoch, action.why or "", now=now
        )


def _next_action(tick: _Tick) -> Action:
    """Decide the next action; read the blob channel once before giving a silent node up.

    The clouds may have taken a minute to answer: the node may have sent a heartbeat meanwhile.
    """
    action = decide(tick.view, tick.clock())
    if not isinstance(action, MarkTerminating) or action.cause not in SILENCE_CAUSES:
        return action
    since = tick.view.node_heartbeat_at
    if blob_channel.may_be_alive(tick.context, tick.cluster_id, since=since, now=tick.clock()):
        return Wait(RECHECK_SOON, "its node sent a heartbeat just now")
    return action


def _execute(tick: _Tick, action: CloudAction) -> ClusterView:
    """Execute one action under a fresh lease and apply its observation."""
    tick.renew()
    observation = execute(action, tick.clouds, tick.view.name, tick.plan)
    if isinstance(observation, LaunchReported):
        record_offers(
            tick.context, tick.cluster_id, tick.epoch, observation.report, now=tick.clock()
        )
    return apply_observation(tick.view, observation, tick.clock())
