"""Deadlines, periods and limits of the worker, in one table, since many of them bound each other.

The order that must hold: one call to a cloud < a cluster's lease < `LAUNCH_GRACE`, and one
reconcile tick with its last call < `CLOUD_TASK_LIMIT_S` < `VISIBILITY_TIMEOUT_S`.
"""

from __future__ import annotations

from datetime import timedelta

# Celery tasks

TASK_LIMIT_S = 50
CLOUD_TASK_LIMIT_S = 240
"""Of tasks that call clouds."""
VISIBILITY_TIMEOUT_S = 300
"""After this the broker redelivers an unacknowledged task of a dead worker; no task runs as long.
Nothing waits for the redelivery: the next periodic sweep finds the same work due."""
MESSAGE_TTL_S = 10.0
"""A task message that no worker took for this long expires: the sweep sends it again anyway."""

# Reconciling clusters

RECONCILE_TICK_S = 90.0
"""After this a tick leaves the rest to the next one: tasks are killed at
`CLOUD_TASK_LIMIT_S`."""
LEASE_FRESHNESS = timedelta(seconds=10)
"""A lease taken or renewed this recently outlasts one more call, so it is not renewed again."""
LAUNCH_GRACE = timedelta(seconds=180)
"""A recorded launch may still reach the API server for this long, or be finished by a process that
outlived its API server: longer than any call's deadline (75 s), with room for clock skew."""
NODE_SILENCE = timedelta(seconds=120)
"""A first node without a heartbeat for this long may be lost: its cluster is then checked."""
JOBS_POLL_INTERVAL = timedelta(seconds=60)
"""Between two listings of a cluster's jobs: each takes seconds."""
SWEEP_FRESHNESS = timedelta(minutes=3)
"""A sweep's observation older than this is not used: sweeps run every 15 s and may take a minute.
Without a fresh one the cluster's job is queried."""
UNHEALTHY_GRACE = timedelta(minutes=5)
"""A cluster that exists but is not UP for this long, with a silent node, counts as lost."""
TERMINATION_RETRY = timedelta(seconds=60)
"""A cluster that still exists this long after a termination request gets another request."""
TERMINATION_OVERDUE = timedelta(minutes=10)
"""A cluster that still exists after terminating for this long is reported: it may cost money."""
RECHECK_SOON = timedelta(seconds=3)
RECHECK_LATER = timedelta(seconds=15)
NO_RECHECK = timedelta(days=1)

# Silence of nodes and trainers, after which the blob store is read

BLOB_CHANNEL_SILENCE = timedelta(seconds=20)
"""A node that could reach the API and did not for this long may have written to the blob store."""
TRAINER_SILENCE_S = 10.0
"""A trainer that pushed no events for this long may have been unable to."""

# Exclusions of clouds after failed launches

NO_CAPACITY_EXCLUSION = timedelta(minutes=20)
"""Capacity that ran out may be back soon."""
FAILURE_EXCLUSION = timedelta(hours=1)
OPERATOR_EXCLUSION = timedelta(hours=6)
"""Quota and credentials change when a person acts, who then deletes the exclusion."""

# Expiry of rows

IDEMPOTENCY_KEY_TTL = timedelta(hours=24)
IDLE_RUNNER_TTL = timedelta(days=7)
"""A silent runner that never claimed an attempt is deleted after this."""

# Deletion of runs and projects

REMOVAL_S = 2.0
"""A sweep deletes for this long and leaves the rest to the next one: one process does all tasks."""
LATE_BLOBS = timedelta(days=1)
"""Blobs of a deleted run are deleted again after this: a trainer that lost its service may have
gone on uploading."""
PROJECT_GRACE = timedelta(minutes=15)
"""The last rows of a project go this long after its deletion was requested: no request that was
admitted before, be it the upload of a dataset, is under way then."""

# Circuit breaker of the blob store

SLOW_ERROR_S = 1.0
"""An error that took this long comes from a store that is down; refusals come at once."""
CIRCUIT_OPEN_S = 30.0
"""The circuit stays open for this long, per process."""

# Calls to SkyPilot's API server

CONNECT_S = 5.0
LOCAL_CALL_S, CLOUD_CALL_S = 20.0, 75.0
"""Deadlines of a call that the server answers by itself, and of one that queries a cloud: both
below the 90 s of a cluster's lease and the 180 s of `LAUNCH_GRACE`."""
OPTIONAL_CALL_S = 15.0
"""Deadline of a call whose answer is not essential: the provisioning ledger, prices."""
ABANDONED_REQUEST_S = 300.0
"""A request without an answer for this long is abandoned, and the query is sent again."""
WHEEL_BUILD_S = 45.0
