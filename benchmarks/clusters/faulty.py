"""Clouds of the simulation: those of the tests, with seeded faults of single calls and launches."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.worker.clusters.scripted import FACTS, ScriptedClouds
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudJob,
    CloudsUnreachable,
    ClusterPlan,
    ErrorKind,
    OfferOutcome,
    RequestReport,
    RequestState,
    TriedOffer,
)

LAUNCH_S = (20.0, 90.0)
"""How long a launch takes (seconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """Of each fault, per launch or per call."""

    no_capacity: float = 0.2
    setup_failed: float = 0.02
    launch_answer_lost: float = 0.12
    """The request is accepted, and nobody hears of it: create, then timeout."""
    answer_lost: float = 0.02
    """Of any other call."""


@dataclass(slots=True)
class FaultyClouds(ScriptedClouds):
    """`barren` and `refusing` are words in names of jobs: attempts of runs that never get any."""

    chances: Chances = Chances()
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    faults: Counter[str] = field(default_factory=Counter)
    fails_as: dict[str, ErrorKind] = field(default_factory=dict)
    """By request id."""
    never: dict[str, ErrorKind] = field(default_factory=dict)
    """By what a cluster's name begins with: runs whose every launch ends so."""

    def launch(self, plan: ClusterPlan) -> str:
        kind = self.never.get(plan.name.rpartition("-")[0]) or self._drawn()
        self.fails_launches, self.launch_s = kind is not None, self.rng.uniform(*LAUNCH_S)
        try:
            request_id = ScriptedClouds.launch(self, plan)
        finally:
            self.fails_launches = False
        if kind is not None:
            self.fails_as[request_id] = kind
            self.faults[f"launch ended: {kind.value}"] += 1
        if self.rng.random() < self.chances.launch_answer_lost:
            self.faults["create, then timeout"] += 1
            raise CloudsUnreachable("no answer in time")
        return request_id

    def _drawn(self) -> ErrorKind | None:
        drawn = self.rng.random()
        if drawn < self.chances.no_capacity:
            return ErrorKind.NO_CAPACITY
        drawn -= self.chances.no_capacity
        return ErrorKind.SETUP_FAILED if drawn < self.chances.setup_failed else None

    def get_launch(self, request_id: str) -> RequestReport:
        report = ScriptedClouds.get_launch(self, request_id)
        self._maybe_lose()
        kind = self.fails_as.get(request_id)
        if report.state is RequestState.FAILED and kind is not None:
            tried = TriedOffer(
                infra=FACTS.infra, outcome=OfferOutcome.REFUSED, seconds=3.0, error_class=kind.value
            )
            error = CloudError(kind, f"scripted: {kind.value}", (tried,))
            return RequestReport(state=report.state, error=error)
        if report.state is RequestState.DONE:
            tried = TriedOffer(infra=FACTS.infra, sku=FACTS.sku, outcome=OfferOutcome.UP)
            return RequestReport(
                state=report.state, job_id=report.job_id, cluster=report.cluster, offers=(tried,)
            )
        return report

    def list_launches(self, name: str) -> tuple[str, ...]:
        self._maybe_lose()
        return ScriptedClouds.list_launches(self, name)

    def list_clusters(self) -> Mapping[str, CloudCluster]:
        self._maybe_lose()
        return ScriptedClouds.list_clusters(self)

    def get_cluster(self, name: str) -> CloudCluster | None:
        self._maybe_lose()
        return ScriptedClouds.get_cluster(self, name)

    def list_jobs(self, name: str) -> tuple[CloudJob, ...] | None:
        self._maybe_lose()
        return ScriptedClouds.list_jobs(self, name)

    def terminate(self, name: str) -> str:
        request_id = ScriptedClouds.terminate(self, name)
        self._maybe_lose()
        return request_id

    def _maybe_lose(self) -> None:
        if not self.is_away and self.rng.random() < self.chances.answer_lost:
            self.faults["answer of another call lost"] += 1
            raise CloudsUnreachable("no answer in time")
