"""The port to the clouds and the values that cross it. Nothing here imports sky.

A cluster is identified by its name; a request id is only a shortcut, because ids are lost when the
API server restarts. Every call has a deadline below a task's limit, and none is made inside a
database session.

CloudsError
├── CloudsUnreachable    no answer this time: says nothing about any cluster, changes nothing
└── CloudError           a launch was refused or failed: `kind` has the reason
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from hillclimb.hardware.offers import Offer
from hillclimb.spec.backend.skypilot import CandidateSpec, TrainerInstall


class CloudsError(Exception):
    """Root of the tree; the message is a sentence."""


class CloudsUnreachable(CloudsError):
    """The API server did not answer in time. Unreachable is not dead."""


class ErrorKind(StrEnum):
    """Reason of a refused or failed launch."""

    NO_CAPACITY = "no_capacity"
    """Every candidate was requested, and none had capacity."""
    UNSATISFIABLE = "unsatisfiable"
    """No configured cloud offers such machines at all."""
    REFUSED = "refused"
    """Credentials or quota: an operator has to act."""
    MISMATCH = "mismatch"
    """A cluster of that name exists, with other machines."""
    SETUP_FAILED = "setup_failed"
    """The machines came up, and their set-up failed."""
    UNKNOWN = "unknown"


class OfferOutcome(StrEnum):
    """Result of trying one offer."""

    UP = "up"
    REFUSED = "refused"
    """The cloud has no capacity now."""
    INELIGIBLE = "ineligible"
    """The cloud was not tried: it lacks a feature that the plan needs."""
    FAILED = "failed"
    """Anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedOffer:
    """One row of the provisioning ledger."""

    infra: str
    region: str | None = None
    sku: str | None = None
    hourly_usd: float | None = None
    """Of all nodes together (USD)."""
    outcome: OfferOutcome
    seconds: float | None = None
    """Duration of the try; None where the log has no times."""
    error_class: str | None = None
    message: str | None = None
    """One sentence, without terminal codes."""


class CloudError(CloudsError):
    """A launch was refused or failed."""

    def __init__(self, kind: ErrorKind, message: str, offers: tuple[TriedOffer, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.offers = offers

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind, self.message, self.offers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Everything needed to launch one cluster with one job on it."""

    name: str
    """The cluster's: `hc-{deployment}-{run}-{attempt}`, never reused."""
    job_name: str
    """Its one job's: the attempt's id."""
    candidates: tuple[CandidateSpec, ...]
    """Eligible machines, excluded ones last, with sizes filled in."""
    is_ordered: bool
    """Take the first candidate with capacity; otherwise the cheapest."""
    num_nodes: int
    trainer: TrainerInstall
    setup: str
    """Shell script that every node runs before the job."""
    run: str
    """Shell script that every node runs as the job."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths on this machine, by paths on the nodes."""
    envs: Mapping[str, str] = field(default_factory=dict)
    """Environment variables without secrets: SkyPilot shows them."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables sent as one file, so that no command line, script or database has them."""
    secrets_path: str = ""
    """The file's path on the nodes; required where there are secrets."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Tags, on clouds that have tags."""
    idle_minutes: int | None = None
    """SkyPilot's autodown after this idle time, on clouds that support it; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The machines of a launched cluster."""

    infra: str
    region: str | None
    sku: str | None
    num_nodes: int
    hourly_usd: float | None
    """Of all nodes together (USD); None where the cloud has no price."""


class RequestState(StrEnum):
    """State of a launch request."""

    WORKING = "working"
    DONE = "done"
    FAILED = "failed"
    FORGOTTEN = "forgotten"
    """The API server restarted and lost the request: the launch may still have succeeded, which
    only a search by name shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport:
    """State of a launch request, with its result."""

    state: RequestState
    job_id: int | None = None
    """Of `done`."""
    cluster: ClusterFacts | None = None
    """Of `done`."""
    error: CloudError | None = None
    """Of `failed`."""
    offers: tuple[TriedOffer, ...] = ()
    """Offers tried so far, in order; every report has the whole list."""


class CloudState(StrEnum):
    """State of a cluster as its cloud reports it."""

    INIT = "coming"
    """Machines are requested, or only some of them exist; SkyPilot's INIT and PENDING."""
    UP = "up"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudCluster:
    """A cluster that exists at its cloud."""

    name: str
    state: CloudState
    cluster: ClusterFacts | None = None
    """None where the API server has no handle of it."""


class JobState(StrEnum):
    """State of a job on a cluster."""

    WAITING = "waiting"
    SETTING_UP = "setting_up"
    """The set-up script runs: for minutes, and no heartbeat comes yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SETUP_FAILED = "setup_failed"
    """The set-up script failed: it would on other machines too."""
    CANCELLED = "cancelled"

    @property
    def is_live(self) -> bool:
        """True while it runs or is going to."""
        return self in (JobState.WAITING, JobState.SETTING_UP, JobState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudJob:
    """A job on a cluster."""

    id: int
    name: str
    state: JobState


class Clouds(Protocol):
    """Launches and terminates clusters by name. Every method may raise CloudsUnreachable."""

    def launch(self, plan: ClusterPlan) -> str:
        """Request the cluster and its job; returns the request's id at once.

        A cluster of that name that exists already is reused, and gets one more job.

        Raises:
            CloudError: the plan was refused, and no request exists.
        """
        ...

    def list_launches(self, name: str) -> tuple[str, ...]:
        """Return ids of the unfinished launches of that name, oldest first."""
        ...

    def get_launch(self, request_id: str) -> RequestReport:
        """Return the state of a launch request; idempotent."""
        ...

    def list_clusters(self) -> Mapping[str, CloudCluster]:
        """Return every cluster whose name has our prefix, by name, refreshed from its cloud."""
        ...

    def get_cluster(self, name: str) -> CloudCluster | None:
        """Return one cluster, refreshed from its cloud alone; None where it does not exist."""
        ...

    def list_jobs(self, name: str) -> tuple[CloudJob, ...] | None:
        """Return the jobs of a cluster, oldest first; empty where there is no cluster. Slow.

        None: the cluster exists but is not up to list them.
        """
        ...

    def cancel_jobs(self, name: str, ids: tuple[int, ...]) -> str:
        """Request the cancellation of jobs; returns the request's id."""
        ...

    def terminate(self, name: str) -> str:
        """Request termination; returns the request's id. A cluster need not exist."""
        ...

    def termination_fault(self, request_id: str) -> str | None:
        """Return a sentence why a termination request failed; None where it did not."""
        ...

    def list_offers(self, plan: ClusterPlan) -> tuple[Offer, ...]:
        """Return the candidates' prices from the clouds' catalogs; launches nothing."""
        ...
