"""One cluster as the database knows it, and what one tick found out about it: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from api.clusters.store import ClusterState as ClusterState
from worker.clusters.base import (
    CloudError,
    ClusterFacts,
    JobSighting,
    RequestReport,
    SeenState,
    Sighting,
)


class Cause(StrEnum):
    """Why a cluster ends, where the cluster itself is the reason; the attempt ends with it."""

    NO_CAPACITY = "no_capacity"
    UNSATISFIABLE = "unsatisfiable"
    REFUSED = "refused"
    MISMATCH = "mismatch"
    SETUP_FAILED = "setup_failed"
    LAUNCH_FAILED = "launch_failed"
    """It failed for an unknown reason, or was asked for too often."""
    CLUSTER_LOST = "cluster_lost"
    """Its cloud took it back, or it is broken."""
    JOB_ENDED = "job_ended"
    """Its job is over, and nobody said how."""
    WALL_CLOCK_LIMIT = "wall_clock_limit"


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at the clouds; `sighting` is None where the cluster is not there."""

    sighting: Sighting | None


@dataclass(frozen=True, slots=True)
class DownFault:
    """`Clouds.down_fault` answered."""

    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What this tick has found out so far; None: it has not looked."""

    is_unreachable: bool = False
    why_unreachable: str = ""
    is_recorded: bool = False
    """This tick has committed that it will launch."""
    launches: tuple[str, ...] | None = None
    looked: Looked | None = None
    jobs: tuple[JobSighting, ...] | None = None
    is_not_up: bool = False
    """It was asked for its jobs and could not tell of them."""
    report: RequestReport | None = None
    is_down_asked: bool = False
    down_fault: DownFault | None = None
    are_duplicates_cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A row of `clusters`, with what belongs to it of its run. Times are the database's."""

    name: str
    job_name: str
    state: ClusterState = ClusterState.WANTED
    is_wanted: bool = True
    """False once its attempt has ended, or the run was cancelled or paused."""
    has_predecessor: bool = False
    """Whether an earlier cluster of the run is not gone."""
    is_shut_out: bool = False
    """Of a cluster that is wanted: whether its nodes would ask the API for their plan, and no
    process of it is there."""
    shut_out_at: datetime | None = None
    """When that was so last while it was up and nobody had the plan."""
    launch_asked_at: datetime | None = None
    """Committed before a launch is called; also when a request was found to be forgotten."""
    launch_tries: int = 0
    """Launches recorded (count)."""
    request_id: str | None = None
    job_id: int | None = None
    cluster: ClusterFacts | None = None
    up_at: datetime | None = None
    seen_state: SeenState | None = None
    """By the newest sweep that got an answer; None: it was not there."""
    seen_at: datetime | None = None
    """When that sweep was."""
    num_unseen: int = 0
    """Sweeps in a row, up to the newest and since its node was heard, that got an answer and did
    not find it (count)."""
    unsound_since: datetime | None = None
    """Since when sweeps have found it, but not up, and its node was not heard."""
    node_heard_at: datetime | None = None
    """When its first node was last heard, over HTTP or through the blob store."""
    jobs_asked_at: datetime | None = None
    num_jobless: int = 0
    """Answers in a row, since its node was last heard, that had no job of ours (count)."""
    wall_limit_at: datetime | None = None
    down_asked_at: datetime | None = None
    down_request_id: str | None = None
    """The newest request to end it."""
    ending_at: datetime | None = None
    """Since when it is to go."""
    is_end_warned: bool = False
    """Whether its run was told that it does not go."""
    waits_for: str | None = None
    """What the newest tick left it waiting for; None: at work, or gone."""
    cause: Cause | None = None
    message: str | None = None
    known: Known = Known()
    """Of this tick alone: a new one begins with nothing."""


@dataclass(frozen=True, slots=True)
class Launches:
    """`Clouds.open_launches` answered."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Jobs:
    """`Clouds.jobs` answered; None: the cluster is not up to tell."""

    jobs: tuple[JobSighting, ...] | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """It is committed that a launch will be called."""


@dataclass(frozen=True, slots=True)
class Launched:
    """`Clouds.launch` answered."""

    request_id: str


@dataclass(frozen=True, slots=True)
class NotLaunched:
    """`Clouds.launch` refused."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class Reported:
    """`Clouds.request` answered."""

    report: RequestReport


@dataclass(frozen=True, slots=True)
class DownAsked:
    """`Clouds.down` answered."""

    request_id: str


@dataclass(frozen=True, slots=True)
class DuplicatesCancelled:
    """`Clouds.cancel_jobs` answered."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Nobody answered, or not in time: the call may have been heard all the same."""

    message: str


Fact: TypeAlias = (
    Launches
    | Looked
    | Jobs
    | Recorded
    | Launched
    | NotLaunched
    | Reported
    | DownAsked
    | DownFault
    | DuplicatesCancelled
    | Unreachable
)
"""What performing an action found out."""
