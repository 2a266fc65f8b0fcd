"""Clouds that do what a test says: launches take time, requests are forgotten, nobody answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hillclimb.hardware.offers import Offer
from hillclimb.spec.backend.skypilot import CandidateSpec, TrainerInstall
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudJob,
    CloudState,
    CloudsUnreachable,
    ClusterFacts,
    ClusterPlan,
    ErrorKind,
    JobState,
    OfferOutcome,
    RequestReport,
    RequestState,
    TriedOffer,
)

ORPHANED_S = 80.0
"""How long a process goes on at most when its API server is gone (seconds)."""
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FACTS = ClusterFacts(
    infra="lambda", region="us-west-1", sku="gpu_8x_h100", num_nodes=1, hourly_usd=23.92
)


@dataclass(slots=True)
class Request:
    """A launch at work in some process of the API server."""

    id: str
    name: str
    job_name: str
    ends_at: datetime
    fails: bool = False
    state: RequestState = RequestState.WORKING
    job_id: int | None = None


@dataclass(slots=True)
class Cluster:
    name: str
    jobs: list[CloudJob] = field(default_factory=list)
    terminating_at: datetime | None = None


@dataclass(slots=True)
class ScriptedClouds:
    """An API server and its clouds; `now` is moved by the test."""

    now: datetime = START
    launch_s: float = 10.0
    is_away: bool = False
    loses_answers: bool = False
    """What is asked for happens, but nobody hears of it."""
    fails_launches: bool = False
    refusal: ErrorKind = ErrorKind.NO_CAPACITY
    tried: tuple[TriedOffer, ...] = ()
    """What a launch that fails has tried."""
    asked: list[tuple[CandidateSpec, ...]] = field(default_factory=list)
    """The candidates of each launch."""
    catalog: dict[str, float] = field(default_factory=dict)
    """What a node costs an hour, by cloud (USD)."""
    clusters: dict[str, Cluster] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    orphans: list[Request] = field(default_factory=list)
    """Launches of an API server that is gone, carried on by processes that outlived it."""
    refuses_ends: str | None = None
    """Requests to end a cluster fail so, long after they were taken."""
    broken: set[str] = field(default_factory=set)
    """Names of clusters that are there, but not up."""
    num_launches: int = 0
    max_open: int = 0
    """The most launches of one name that were under way at once."""

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        for request in [*self.requests, *self.orphans]:
            if request.state is RequestState.WORKING and request.ends_at <= self.now:
                self._finish(request)
        gone = [
            c.name
            for c in self.clusters.values()
            if c.terminating_at and c.terminating_at <= self.now
        ]
        for name in gone:
            del self.clusters[name]

    def _finish(self, request: Request) -> None:
        if request.fails:
            request.state = RequestState.FAILED
            return
        cluster = self.clusters.setdefault(request.name, Cluster(request.name))
        self.broken.discard(request.name)
        number = len(cluster.jobs) + 1
        cluster.jobs.append(CloudJob(id=number, name=request.job_name, state=JobState.RUNNING))
        request.state, request.job_id = RequestState.DONE, number

    def restart_server(self) -> None:
        """Its memory of requests is gone, its processes go on."""
        for request in self.requests:
            if request.state is RequestState.WORKING:
                soonest = self.now + timedelta(seconds=ORPHANED_S)
                request.ends_at = min(request.ends_at, soonest)
                self.orphans.append(request)
        self.requests.clear()

    def preempt(self, name: str) -> None:
        self.clusters.pop(name, None)

    def end_jobs(self, name: str, state: JobState) -> None:
        cluster = self.clusters.get(name)
        if cluster is not None:
            cluster.jobs = [CloudJob(id=j.id, name=j.name, state=state) for j in cluster.jobs]

    def under_way(self, name: str) -> int:
        both = [*self.requests, *self.orphans]
        return sum(r.name == name and r.state is RequestState.WORKING for r in both)

    # What follows is the port.

    def launch(self, plan: ClusterPlan) -> str:
        self._reach()
        self.num_launches += 1
        self.asked.append(plan.candidates)
        request = Request(
            id=f"r{self.num_launches}",
            name=plan.name,
            job_name=plan.job_name,
            ends_at=self.now + timedelta(seconds=self.launch_s),
            fails=self.fails_launches,
        )
        self.requests.append(request)
        self.max_open = max(self.max_open, self.under_way(plan.name))
        self._answer()
        return request.id

    def list_launches(self, name: str) -> tuple[str, ...]:
        self._reach()
        open_ = [r for r in self.requests if r.name == name and r.state is RequestState.WORKING]
        self._answer()
        return tuple(request.id for request in open_)

    def get_launch(self, request_id: str) -> RequestReport:
        self._reach()
        found = next((r for r in self.requests if r.id == request_id), None)
        self._answer()
        if found is None:
            return RequestReport(state=RequestState.FORGOTTEN)
        if found.state is RequestState.DONE:
            return RequestReport(state=found.state, job_id=found.job_id, cluster=FACTS)
        if found.state is RequestState.FAILED:
            error = CloudError(self.refusal, "nothing could be had", self.tried)
            return RequestReport(state=found.state, error=error)
        return RequestReport(state=found.state, offers=self._had(found))

    def _had(self, request: Request) -> tuple[TriedOffer, ...]:
        """Machines are there after half of the time, and are set up in the other."""
        if (request.ends_at - self.now).total_seconds() > self.launch_s / 2:
            return ()
        return (TriedOffer(infra="lambda", outcome=OfferOutcome.UP, hourly_usd=FACTS.hourly_usd),)

    def list_clusters(self) -> Mapping[str, CloudCluster]:
        self._reach()
        self._answer()
        return {name: self._seen(name) for name in self.clusters}

    def get_cluster(self, name: str) -> CloudCluster | None:
        self._reach()
        self._answer()
        return self._seen(name) if name in self.clusters else None

    def list_jobs(self, name: str) -> tuple[CloudJob, ...] | None:
        self._reach()
        self._answer()
        if name in self.broken and name in self.clusters:
            return None
        return tuple(self.clusters[name].jobs) if name in self.clusters else ()

    def cancel_jobs(self, name: str, ids: tuple[int, ...]) -> str:
        self._reach()
        cluster = self.clusters.get(name)
        if cluster is not None:
            cluster.jobs = [
                CloudJob(id=j.id, name=j.name, state=JobState.CANCELLED) if j.id in ids else j
                for j in cluster.jobs
            ]
        self._answer()
        return "cancel"

    def terminate(self, name: str) -> str:
        self._reach()
        cluster = self.clusters.get(name)
        is_refused = self.refuses_ends is not None
        if cluster is not None and cluster.terminating_at is None and not is_refused:
            cluster.terminating_at = self.now + timedelta(seconds=20)
        self._answer()
        return "down"

    def termination_fault(self, request_id: str) -> str | None:
        assert request_id == "down"
        self._reach()
        self._answer()
        return self.refuses_ends

    def list_offers(self, plan: ClusterPlan) -> tuple[Offer, ...]:
        self._reach()
        self._answer()
        return tuple(
            Offer(
                candidate=number,
                infra=f"{each.cloud}/{FACTS.region}",
                sku=FACTS.sku,
                hourly_usd=self.catalog[each.cloud] * plan.num_nodes,
            )
            for number, each in enumerate(plan.candidates)
            if each.cloud in self.catalog
        )

    def _seen(self, name: str) -> CloudCluster:
        state = CloudState.INIT if name in self.broken else CloudState.UP
        return CloudCluster(name=name, state=state, cluster=FACTS)

    def _reach(self) -> None:
        if self.is_away:
            raise CloudsUnreachable("refused")

    def _answer(self) -> None:
        if self.loses_answers:
            raise CloudsUnreachable("no answer in time")


def plan_of(name: str, job_name: str) -> ClusterPlan:
    return ClusterPlan(
        name=name,
        job_name=job_name,
        candidates=(),
        is_ordered=True,
        num_nodes=1,
        trainer=TrainerInstall(),
        setup="",
        run="",
    )
