"""Facts of a run for messages: configuration, machines, checkpoint, cost, W&B, evaluations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import budgets
from api.clusters.store import ClusterState, of_run
from api.runs.store import newest_checkpoint
from api.tables import Run, RunEvent
from hillclimb.spec.rules.project_defaults import TOOL_USE

BACKENDS = {"runner": "own machine", "skypilot": "SkyPilot", "tinker": "Tinker"}
MAX_ENV_KEYS = 8
UNSAFE_IN_SLACK = re.compile(r"[<>|&\s]")
"""Characters that an address would break Slack's markup with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPoint:
    """Overall result of one evaluation under one decoding (shares in [0, 1])."""

    step: int
    rate: float | None
    low: float | None
    high: float | None
    num_tasks: int
    """Tasks with a graded rollout."""
    num_graded: int
    """Graded rollouts."""
    at_n: tuple[int, float | None] | None
    """The number of rollouts per task and pass@n; null for one rollout per task."""


def configuration(run: Run) -> tuple[tuple[str, str], ...]:
    """Return what a person wants to know of a run's spec and author, as names with values."""
    return (*configuration_of(run.spec), ("Submitted by", run.created_by))


def configuration_of(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what a person wants to know of a resolved spec, as names with values."""
    env_keys = list(spec["data"]["env_keys"])
    names = ", ".join(env_keys[:MAX_ENV_KEYS])
    if len(env_keys) > MAX_ENV_KEYS:
        names += f" and {len(env_keys) - MAX_ENV_KEYS} more"
    schedule, rollout = spec["schedule"], spec["rollout"]
    config = (
        f"{spec['algorithm']['type']}, lr {spec['optimizer']['lr']:g}, batch"
        f" {schedule['train_batch_size']} × {rollout['n_samples_per_prompt']} rollouts"
    )
    kind = spec.get("kind", "train")
    return (
        ("Backend", BACKENDS.get(spec["backend"]["type"], spec["backend"]["type"])),
        ("Modality", spec["data"].get("modality") or TOOL_USE),
        ("Model", str(spec["model"]["source"])),
        ("Environments", names or "those of the dataset"),
        ("Config", config if kind == "train" else f"kind {kind}"),
    )


def wandb_line(run: Run) -> str | None:
    """Return where the run is at W&B, in Slack's markup; null without tracking.

    The address is what the trainer got from W&B; before that, what the spec says it will be.
    """
    wandb = (run.spec.get("tracking") or {}).get("wandb") or {}
    if wandb.get("mode") not in ("online", "offline") or run.attempt < 1:
        return None
    name = f"{run.id}-attempt-{run.attempt}"
    if wandb["mode"] == "offline":
        return f"W&B: offline files of `{name}`: `hillclimb export tracking {run.id} DIR`"
    address = run.links.get("wandb")
    if address is not None and not UNSAFE_IN_SLACK.search(address):
        return f"W&B: <{address}|{name}>"
    if not wandb.get("entity"):
        return f"W&B: run `{name}` of project `{wandb['project']}`"
    url = f"https://wandb.ai/{wandb['entity']}/{wandb['project']}/runs/{name}"
    return f"W&B: <{url}|{name}>"


def machines_line(session: Session, run: Run) -> str:
    """Return what has become of the run's machines."""
    clusters = of_run(session, run.id)
    if not clusters:
        return "no machines were rented"
    live = [each for each in clusters if each.state != ClusterState.TERMINATED.value]
    if not live:
        return f"all machines are terminated ({_clusters(len(clusters))})"
    states = ", ".join(f"{each.name} {each.state}" for each in live[:3])
    return f"{_clusters(len(live))} not terminated yet: {states}"


def has_live_machines(session: Session, run: Run) -> bool:
    """Return True while a cluster of the run is not known to be terminated."""
    clusters = of_run(session, run.id)
    return any(each.state != ClusterState.TERMINATED.value for each in clusters)


def checkpoint_line(session: Session, run: Run) -> str:
    """Return which checkpoint the run leaves."""
    checkpoint = newest_checkpoint(session, run.id)
    if checkpoint is None:
        return "no checkpoint was saved"
    return f"checkpoint of step {checkpoint.step} is kept (`hillclimb resume` continues from it)"


def cost_line(session: Session, run: Run, *, now: datetime) -> str:
    """Return what the run has cost, with its budgets."""
    spent = budgets.spent_by_run(session, run.id, now=now)
    bound = "" if spent.is_complete else "at least "
    parts = [f"{bound}${spent.usd:.2f}, {spent.hours:.2f} h"]
    parts += [each.summary() for each in budgets.allowances(session, run, now=now)]
    return " · ".join(parts)


def eval_points(session: Session, run_id: str) -> dict[str, tuple[EvalPoint, EvalPoint]]:
    """Return the first and the last evaluation by decoding, in the order they first ran."""
    query = select(RunEvent.data).where(
        RunEvent.run_id == run_id, RunEvent.type == "eval.completed"
    )
    points: dict[str, list[EvalPoint]] = {}
    for data in session.scalars(query.order_by(RunEvent.seq)):
        points.setdefault(str(data["decoding"]), []).append(_point(data))
    return {name: _ends(each) for name, each in points.items()}


def _ends(points: Sequence[EvalPoint]) -> tuple[EvalPoint, EvalPoint]:
    """Return the evaluations of the first and the last step; for a repeated step the newest."""
    by_step = {each.step: each for each in points}
    return by_step[min(by_step)], by_step[max(by_step)]


def _point(data: Mapping[str, Any]) -> EvalPoint:
    overall = data["all"]
    at_n = overall.get("pass_at_n")
    return EvalPoint(
        step=data["step"],
        rate=overall["pass_at_1"],
        low=overall["low"],
        high=overall["high"],
        num_tasks=overall.get("num_tasks", overall["n"]),
        num_graded=overall["n"],
        at_n=at_n and (at_n["k"], at_n["value"]),
    )


def _clusters(number: int) -> str:
    return "1 cluster" if number == 1 else f"{number} clusters"
