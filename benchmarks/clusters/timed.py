"""Clouds of `lag.py`: a table that all processes share, and calls that take their time.

`HILLCLIMB_CLOUDS=benchmarks.clusters.timed:make_clouds`
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from hillclimb.hardware.offers import Offer
from worker.skypilot.port import (
    CloudCluster,
    CloudJob,
    CloudState,
    ClusterFacts,
    ClusterPlan,
    JobState,
    RequestReport,
    RequestState,
)

CALL_S = {
    "launch": 0.5,
    "list_launches": 0.1,
    "get_launch": 0.1,
    "list_clusters": 2.0,
    "get_cluster": 1.0,
    "list_jobs": 4.0,
    "cancel_jobs": 0.2,
    "terminate": 0.2,
}
"""How long the caller waits (seconds)."""
COMES_UP = timedelta(seconds=20)
GOES_DOWN = timedelta(seconds=10)
FACTS = ClusterFacts(
    infra="lambda", region="us-west-1", sku="gpu_8x_h100", num_nodes=1, hourly_usd=23.92
)
TABLE = """
CREATE SCHEMA bench;
CREATE TABLE bench.clouds (
    name text PRIMARY KEY,
    job_name text NOT NULL,
    running_at timestamptz NOT NULL,
    terminated_at timestamptz
);
"""


class TimedClouds:
    """One connection per process; a request's id is the cluster's name."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def _ask(self, call: str, query: str, *values: Any) -> list[Any]:
        time.sleep(CALL_S[call])
        cursor = self._connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []

    def launch(self, plan: ClusterPlan) -> str:
        self._ask(
            "launch",
            "INSERT INTO bench.clouds VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            plan.name,
            plan.job_name,
            datetime.now(UTC) + COMES_UP,
        )
        return plan.name

    def list_launches(self, name: str) -> tuple[str, ...]:
        query = "SELECT name FROM bench.clouds WHERE name = %s AND running_at > now()"
        return tuple(row[0] for row in self._ask("list_launches", query, name))

    def get_launch(self, request_id: str) -> RequestReport:
        query = "SELECT running_at <= now() FROM bench.clouds WHERE name = %s"
        found = self._ask("get_launch", query, request_id)
        if not found:
            return RequestReport(state=RequestState.FORGOTTEN)
        if not found[0][0]:
            return RequestReport(state=RequestState.WORKING)
        return RequestReport(state=RequestState.DONE, job_id=1, cluster=FACTS)

    def list_clusters(self) -> Mapping[str, CloudCluster]:
        query = (
            "SELECT name FROM bench.clouds WHERE running_at <= now()"
            " AND (terminated_at IS NULL OR terminated_at > now())"
        )
        names = [row[0] for row in self._ask("list_clusters", query)]
        return {name: CloudCluster(name=name, state=CloudState.UP, cluster=FACTS) for name in names}

    def get_cluster(self, name: str) -> CloudCluster | None:
        query = (
            "SELECT name FROM bench.clouds WHERE name = %s AND running_at <= now()"
            " AND (terminated_at IS NULL OR terminated_at > now())"
        )
        found = self._ask("get_cluster", query, name)
        return CloudCluster(name=name, state=CloudState.UP, cluster=FACTS) if found else None

    def list_jobs(self, name: str) -> tuple[CloudJob, ...]:
        query = "SELECT job_name FROM bench.clouds WHERE name = %s AND terminated_at IS NULL"
        rows = self._ask("list_jobs", query, name)
        return tuple(CloudJob(id=1, name=row[0], state=JobState.RUNNING) for row in rows)

    def cancel_jobs(self, name: str, ids: tuple[int, ...]) -> str:
        del name, ids
        self._ask("cancel_jobs", "SELECT 1")
        return "cancel"

    def terminate(self, name: str) -> str:
        at = datetime.now(UTC) + GOES_DOWN
        query = (
            "UPDATE bench.clouds SET terminated_at = coalesce(terminated_at, %s) WHERE name = %s"
        )
        self._ask("terminate", query, at, name)
        return "down"

    def termination_fault(self, request_id: str) -> None:
        del request_id
        self._ask("get_launch", "SELECT 1")

    def list_offers(self, plan: ClusterPlan) -> tuple[Offer, ...]:
        del plan
        return ()


def make_clouds(prefix: str) -> TimedClouds:
    """Return the clouds of this process; their table is in the service's own database."""
    del prefix
    return TimedClouds(os.environ["DATABASE_URL"].replace("+psycopg", ""))
