"""Runs on clusters, with the rows that the worker would have written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from api.clusters import store as clusters
from api.runs import store
from api.runs.journal import utc_now
from api.scheduling import attempts
from api.tables import Cluster, LaunchTry
from hillclimb.spec.backend.skypilot import CandidateSpec
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.story import Story, spec
from tests.worker.api_presence import be_there

LAMBDA = CandidateSpec(infra="lambda", accelerators="H100:8")
SKY = {
    "type": "skypilot",
    "skypilot": {
        "candidates": [
            {"infra": "lambda", "accelerators": "H100:8"},
            {"infra": "nebius", "accelerators": "H100:8"},
        ]
    },
}


def rented(
    story: Story, name: str = "far", *, hours: float = 0.0, eta_s: float | None = None, **more: Any
) -> str:
    """Return a run whose cluster has been up for so long, after a refusal by another cloud."""
    body = spec(name).model_dump(mode="json") | {"backend": SKY, "experimental": True} | more
    run_id = story.submit(RunSpec.model_validate(body))
    now = utc_now()
    had_at = now - timedelta(hours=hours)
    with story.database.transaction() as session:
        be_there(session)
        run = store.lock_run(session, run_id)
        attempt = attempts.schedule(session, run, now=had_at)
        assert attempt is not None
        cluster = clusters.of_attempt(session, attempt.id)
        assert cluster is not None
        cluster.state, cluster.infra, cluster.region = "running", "nebius", "eu-north1"
        cluster.sku, cluster.hourly_usd = "gpu-h100-sxm_8gpu", 23.92
        cluster.billed_from = cluster.running_at = had_at
        cluster.wall_limit_at = had_at + timedelta(hours=24)
        run.progress_eta_s = eta_s
        session.add_all(_ledger(cluster))
    return run_id


def _ledger(cluster: Cluster) -> list[LaunchTry]:
    return [
        LaunchTry(
            cluster_id=cluster.id,
            launch=1,
            number=1,
            at=cluster.running_at,
            seconds=41.0,
            infra="lambda",
            region="us-west-1",
            sku="gpu_8x_h100_sxm5",
            hourly_usd=23.92,
            outcome="refused",
            error_class="ResourcesUnavailableError",
            message="no H100 left in us-west-1",
        ),
        LaunchTry(
            cluster_id=cluster.id,
            launch=1,
            number=2,
            at=cluster.running_at,
            seconds=212.0,
            infra="nebius",
            region="eu-north1",
            sku="gpu-h100-sxm_8gpu",
            hourly_usd=23.92,
            outcome="up",
        ),
    ]
