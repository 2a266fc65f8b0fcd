"""Deadlines, leases and periods of runs, attempts, runners and clusters, in one table.

Many of them bound each other. The order that must hold: a worker's lease of a run <
`SERVICE_DOWN_S` < `RUNNER_LEASE_S`, and one call to a cloud < `CLUSTER_LEASE_S`.
Those of the worker's own tasks and calls are in `worker.deadlines`.
"""

from __future__ import annotations

from datetime import timedelta

from api.runs.status import RunStatus

_S = RunStatus

# Longest time in a status

DEADLINES_S: dict[RunStatus, float | None] = {
    _S.QUEUED: None,
    _S.PROVISIONING: 60.0,
    _S.STARTING: 1800.0,
    _S.RUNNING: 1800.0,
    _S.RECOVERING: None,
    _S.PAUSING: 180.0,
    _S.PAUSED: None,
    _S.FINALIZING: 120.0,
    _S.CANCELLING: 180.0,
    _S.SUCCEEDED: None,
    _S.FAILED: None,
    _S.CANCELLED: None,
}
"""Seconds a status may last; `running` counts from the trainer's last event. Waiting for a runner
has no deadline: an absent runner is no fault of the run. `starting` lasts until the trainer has
started, after it has loaded the model (perhaps from a hub), tasks, engines and ranks; the runner or
node reports at once a trainer that dies meanwhile."""
CLUSTER_PROVISIONING_S = 3600.0
"""From a launch request to the first node's claim, and anew from each sign of progress: machines
boot and packages are installed. No deadline counts while no launch is under way."""
CLUSTER_STARTING_S = 3600.0
"""From tested machines to the trainer's start: it downloads a large model and, after a lost
cluster, a checkpoint of a hundred gigabytes."""
CLUSTER_STOPPING_S = 900.0
"""Of a run on a cluster that pauses or is cancelled: uploading a large model's checkpoint takes
minutes. Longer than the node gives its trainer (`HILLCLIMB_NODE_STOP_S`)."""
CLUSTER_DEADLINES_S: dict[RunStatus, float | None] = {
    _S.PROVISIONING: None,
    _S.STARTING: CLUSTER_STARTING_S,
    _S.PAUSING: CLUSTER_STOPPING_S,
    _S.CANCELLING: CLUSTER_STOPPING_S,
}
"""Replaces entries of `DEADLINES_S` for a run on a cluster of its own."""
STEP_MARGIN_S = 300.0
"""A trainer may be silent for this long beyond `schedule.step_timeout_s`."""
KILL_GRACE_S = 30.0
"""From the request to kill a trainer until its attempt is ended without the runner's report."""
TAIL_GRACE_S = 20.0
"""A run waits this long for the last events of a dead attempt before it moves on."""
MAX_SHUTDOWN_NOTICE = timedelta(minutes=15)
"""A run is paused this long before its cluster's limit; a tenth of the cluster's lifetime where
that is less."""

# Leases, heartbeats and polling

RECHECK_S = 5.0
"""The sweep checks a run under way this often, whatever happens to it."""
QUEUE_RECHECK_S = 60.0
"""A run behind the free slots is checked this often; a sweep makes it due when its turn comes."""
RUN_LEASE_S = 30.0
"""A worker's lease of a run."""
CLUSTER_LEASE_S = 90.0
"""A worker's lease of a cluster; renewed before each call to a cloud."""
RUNNER_LEASE_S = 60.0
"""A runner without a heartbeat for this long is lost."""
HEARTBEAT_INTERVAL_S = 2.0
"""Of runners; a cancellation reaches a trainer within it."""
MAX_HEARTBEAT_INTERVAL_S = 15.0
"""Of the runners of a project with hundreds of them: four within a lease."""
HEARTBEATS_PER_S = 25.0
"""Of the runners of a project together, until each has the longest interval."""
OUTBOX_LEASE_S = 60.0
"""After this another worker delivers the message."""

# Outages of the service itself

SERVICE_DOWN_S = 40.0
"""So long after the last complete sweep of runs no worker ran. Longer than a killed
worker's lease blocks the run, and short enough that a shorter outage leaves something of a runner's
lease."""
UNREACHABLE_MARK_INTERVAL = timedelta(seconds=30)
"""A cluster is marked as unable to reach the API at most this often."""
API_UNREACHABLE_GRACE = timedelta(minutes=5)
"""A cluster marked within this time before its attempt ended was not lost. Longer than it takes to
notice that its job exited: jobs are polled once a minute."""
UNATTENDED_S = 300.0
"""A cluster whose check is overdue by this much shows that no worker polls the clouds. Longer than
the slowest cloud call of a worker that was killed during it."""

# Back-off after failed launches

FIRST_BACKOFF = timedelta(seconds=30)
MAX_BACKOFF = timedelta(minutes=15)
CAPACITY_TIMEOUT = timedelta(hours=12)
"""A run whose launches found no capacity for this long, and nothing else, fails."""

# Orphaned clusters and price quotes

ORPHAN_GRACE = timedelta(minutes=10)
"""A cluster that carries our tag and has no owner is only watched for this long."""
QUOTE_FRESHNESS = timedelta(hours=1)
"""An older quote is requested again, and shown until the new one arrives."""
QUOTE_INTEREST = timedelta(minutes=10)
"""A quote that nobody requested for this long is not refreshed."""
QUOTE_LEASE = timedelta(seconds=90)
"""Above the deadline of one catalog query."""
QUOTE_RETRY = timedelta(seconds=30)
"""Back-off after a catalog query that failed."""
QUOTE_TTL = timedelta(days=7)
"""A quote that nobody requested for this long is deleted."""
