"""Machines and costs as plain values for pages; the figures equal those of the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from api.clusters import budgets, store
from api.clusters.budgets import Allowance
from api.clusters.cost import Spent, of_cluster
from api.clusters.overview import ClusterCost, forecast_of_run, overview, status_message
from api.runs.queue_class import QueueClass, queue_class_of
from api.scheduling.limits.spending import shares_of
from api.tables import Cluster, LaunchTry, Run
from hillclimb.spec.backend.skypilot import BudgetSpec

TONES = {
    "running": "good",
    "pending": "",
    "provisioning": "info",
    "terminating": "warn",
    "terminated": "",
}
OUTCOMES = {"up": "good", "refused": "warn", "ineligible": "", "failed": "bad"}
BAR_WIDTH = 240
"""Width of a budget bar in SVG units."""


def machines_contents(session: Session, run: Run, *, now: datetime) -> dict[str, Any] | None:
    """Return the contents of the machines section; null for a run that rents none."""
    if queue_class_of(run) is not QueueClass.CLUSTER:
        return None
    clusters = store.of_run(session, run.id)
    tries = store.launch_tries_of(session, [cluster.id for cluster in clusters])
    cost = forecast_of_run(session, run, now=now)
    num_lost = sum(
        cluster.billed_from is not None and cluster.cause is not None for cluster in clusters[:-1]
    )
    return {
        "clusters": [_cluster(cluster, now=now) for cluster in reversed(clusters)],
        "now": _cluster(clusters[-1], now=now) if clusters else None,
        "cost": None if cost is None else _cost(cost.spent),
        "hourly": _usd(cost.hourly_usd) if cost else "–",
        "left": _usd(cost.left_usd) if cost else "–",
        "whole": _usd(cost.whole_usd) if cost else "–",
        "budgets": [
            _budget(allowance, shares_of(run))
            for allowance in budgets.allowances(session, run, now=now)
        ],
        "offers": [_offer(launch_try) for launch_try in reversed(tries)],
        "num_recoveries": num_lost,
        "max_recoveries": run.spec["backend"]["skypilot"]["max_recoveries"],
    }


def clusters_contents(session: Session, project_id: str, *, now: datetime) -> dict[str, Any]:
    """Return the contents of a project's clusters page."""
    summary = overview(session, project_id, now=now)
    shares = BudgetSpec.model_fields["warn_at"].default
    return {
        "live": [_row(cluster_cost, now=now) for cluster_cost in summary.live],
        "past": [_row(cluster_cost, now=now) for cluster_cost in summary.past],
        "cost": _cost(summary.spent),
        "hours": f"{summary.spent.hours:,.2f} h",
        "hourly": _usd(summary.hourly_usd),
        "budget": None if summary.budget is None else _budget(summary.budget, shares),
        "max_clusters": summary.max_clusters,
        "warning": summary.warning,
        "exclusions": [
            {"infra": e.infra, "sku": e.sku or "all", "reason": e.reason, "until": e.until}
            for e in summary.exclusions
        ],
    }


def _row(cluster_cost: ClusterCost, *, now: datetime) -> dict[str, Any]:
    owner = {
        "run_id": cluster_cost.run.id,
        "run_name": cluster_cost.run.name,
        "status": cluster_cost.run.status,
    }
    return _cluster(cluster_cost.cluster, now=now) | owner


def _cluster(cluster: Cluster, *, now: datetime) -> dict[str, Any]:
    start = cluster.billed_from
    return {
        "name": cluster.name,
        "state": cluster.state,
        "tone": TONES.get(cluster.state, ""),
        "where": where(cluster),
        "machines": f"{cluster.num_nodes} × {cluster.sku}" if cluster.sku else "–",
        "hourly": _usd(cluster.hourly_usd),
        "running_at": cluster.running_at,
        "lived": "–" if start is None else _duration((cluster.terminated_at or now) - start),
        "ends_at": None if cluster.terminated_at else cluster.wall_limit_at,
        "cost": _cost(of_cluster(cluster, now=now)),
        "why": status_message(cluster) or "",
    }


def _offer(offer: LaunchTry) -> dict[str, Any]:
    return {
        "at": offer.at,
        "where": where(offer),
        "sku": offer.sku or "–",
        "hourly": _usd(offer.hourly_usd),
        "seconds": "–" if offer.seconds is None else f"{offer.seconds:.0f} s",
        "outcome": offer.outcome,
        "tone": OUTCOMES.get(offer.outcome, ""),
        "error": offer.error_class or "",
        "message": offer.message or "",
    }


def where(source: Cluster | LaunchTry) -> str:
    """Return cloud and region as text."""
    return " · ".join(part for part in (source.infra, source.region) if part) or "–"


def _budget(allowance: Allowance, shares: Sequence[float]) -> dict[str, Any]:
    """Return a budget with its bar, which ends at 100 %; the figures may be above."""
    tone = "good"
    if allowance.share >= min(shares, default=1.0):
        tone = "warn"
    return {
        "owner": allowance.owner,
        "summary": allowance.summary().partition(": ")[2],
        "share": f"{100 * allowance.share:.0f} %",
        "tone": "bad" if allowance.is_used_up else tone,
        "width": BAR_WIDTH,
        "filled": round(BAR_WIDTH * min(allowance.share, 1.0), 1),
        "marks": [
            {"at": round(BAR_WIDTH * share, 1), "label": f"{share:.0%}"} for share in (*shares, 1.0)
        ],
        "is_used_up": allowance.is_used_up,
    }


def _cost(spent: Spent) -> str:
    return f"{'' if spent.is_complete else '≥ '}${spent.usd:,.2f}"


def _usd(usd: float | None) -> str:
    return "–" if usd is None else f"${usd:,.2f}"


def _duration(lasted: timedelta) -> str:
    minutes = int(lasted.total_seconds() // 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
