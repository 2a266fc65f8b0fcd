"""The port to whoever rents machines, and what is said over it. Nothing here imports sky.

The name of a cluster is the truth, an id of a request only a shortcut: ids die with the API server.
Every call has a deadline below a task's limit, and none is made inside a database session.

CloudsError
├── CloudsUnreachable    no answer this time: says nothing about any cluster, changes nothing
└── CloudError           an answer that is no: `kind` says which
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.spec import CandidateSpec, TrainerInstall


class CloudsError(Exception):
    """Root of the tree; the message is a sentence."""


class CloudsUnreachable(CloudsError):
    """The API server does not answer, or not in time. Unreachable is not dead."""


class ErrorKind(StrEnum):
    """Why there is no cluster."""

    NO_CAPACITY = "no_capacity"
    """Every candidate was asked for, none could be had."""
    UNSATISFIABLE = "unsatisfiable"
    """No cloud that is set up has such machines at all."""
    REFUSED = "refused"
    """Credentials or quota: a person has to act."""
    MISMATCH = "mismatch"
    """A cluster of that name is there, of other machines."""
    SETUP_FAILED = "setup_failed"
    """The machines are there, and setting them up failed."""
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """What became of an offer."""

    UP = "up"
    REFUSED = "refused"
    """The cloud has none of it now."""
    INELIGIBLE = "ineligible"
    """It was never asked: it lacks a feature that the plan needs."""
    FAILED = "failed"
    """Anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferTried:
    """One row of the provisioning ledger."""

    infra: str
    region: str | None = None
    sku: str | None = None
    hourly_usd: float | None = None
    """Of all nodes together (USD)."""
    outcome: Outcome
    seconds: float | None = None
    """How long it took to find out; None where the cloud does not say."""
    error_class: str | None = None
    message: str | None = None
    """In one sentence, without terminal codes."""


class CloudError(CloudsError):
    """A launch that came to nothing."""

    def __init__(self, kind: ErrorKind, message: str, offers: tuple[OfferTried, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.offers = offers

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind, self.message, self.offers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """All that is needed to have one cluster with one job on it."""

    name: str
    """Of the cluster: `hc-{deployment}-{run}-{attempt}`; unique for ever."""
    job_name: str
    """Of its one job: the attempt's id."""
    candidates: tuple[CandidateSpec, ...]
    """Eligible ones that are not excluded, sizes filled in."""
    is_ordered: bool
    """Take the first that can be had; else the cheapest."""
    num_nodes: int
    trainer: TrainerInstall
    setup: str
    """Shell script of every node, before the job."""
    run: str
    """Shell script of every node: the job."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths on the nodes by paths on this machine."""
    envs: Mapping[str, str] = field(default_factory=dict)
    """Nothing secret: they are shown."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Brought as one file: no command line, script or database of requests has them."""
    secrets_at: str = ""
    """Where on the nodes, with the folder it is in; needed where there are secrets."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Our tags, where a cloud has tags."""
    idle_minutes: int | None = None
    """After which the cloud ends an idle cluster by itself, where it can; None never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What was rented."""

    infra: str
    region: str | None
    sku: str | None
    num_nodes: int
    hourly_usd: float | None
    """Of all nodes together (USD); None where the cloud has no price."""


class RequestState(StrEnum):
    """Where a launch stands."""

    WORKING = "working"
    DONE = "done"
    FAILED = "failed"
    FORGOTTEN = "forgotten"
    """The API server was started again meanwhile: only the name can tell what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport:
    """What is known of a launch."""

    state: RequestState
    job_id: int | None = None
    """Of `done`."""
    cluster: ClusterFacts | None = None
    """Of `done`."""
    error: CloudError | None = None
    """Of `failed`."""
    offers: tuple[OfferTried, ...] = ()
    """Tried so far, in order; the whole list every time."""


class SeenState(StrEnum):
    """Of a cluster, after its cloud was asked."""

    COMING = "coming"
    """Machines are asked for, or only a part of them is there."""
    UP = "up"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A cluster that is there."""

    name: str
    state: SeenState
    cluster: ClusterFacts | None = None
    """Where the API server still knows."""


class JobState(StrEnum):
    """Of a job on a cluster."""

    WAITING = "waiting"
    SETTING_UP = "setting_up"
    """What a node does before the job is at work: minutes, and nothing of ours speaks yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SETUP_FAILED = "setup_failed"
    """What a node does before the job failed: on the next machines it would too."""
    CANCELLED = "cancelled"

    @property
    def is_live(self) -> bool:
        """Whether it runs or will."""
        return self in (JobState.WAITING, JobState.SETTING_UP, JobState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSighting:
    """A job of a cluster."""

    id: int
    name: str
    state: JobState


class Clouds(Protocol):
    """Rents clusters by name. Every method raises CloudsUnreachable where nobody answers."""

    def launch(self, plan: ClusterPlan) -> str:
        """Ask for the cluster and its job, and return the request's id at once.

        A cluster of that name is taken as it is, and gets one more job.

        Raises:
            CloudError: the plan was refused before anything was asked for.
        """
        ...

    def open_launches(self, name: str) -> tuple[str, ...]:
        """Return ids of launches of that name that are still under way, oldest first."""
        ...

    def request(self, request_id: str) -> RequestReport:
        """Say where a launch stands; may be asked again and again."""
        ...

    def sightings(self) -> Mapping[str, Sighting]:
        """Return every cluster whose name has our prefix, by name, each asked for at its cloud."""
        ...

    def sighting(self, name: str) -> Sighting | None:
        """Return one cluster, asked for at its cloud and no other; None where there is none."""
        ...

    def jobs(self, name: str) -> tuple[JobSighting, ...] | None:
        """Return the jobs of a cluster, oldest first; none where there is no cluster. Slow.

        None: the cluster is there, but not up to tell of them.
        """
        ...

    def cancel_jobs(self, name: str, ids: tuple[int, ...]) -> str:
        """Ask for jobs to be cancelled and return the request's id."""
        ...

    def down(self, name: str) -> str:
        """Ask for a cluster to be ended, and return the request's id; none of that name is fine."""
        ...

    def down_fault(self, request_id: str) -> str | None:
        """Say in a sentence why a request of `down` failed; None where it did not."""
        ...

    def offers(self, plan: ClusterPlan) -> tuple[Offer, ...]:
        """Return what the candidates cost by the clouds' catalogs; rents nothing."""
        ...
