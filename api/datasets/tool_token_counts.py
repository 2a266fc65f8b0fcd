"""Token counts of tools, measured in runs of a project; lint uses them by default.

Every trainer tells the tokens of its prompts before its first rollout, and a preview does nothing
else; the newest word about an environment counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.results.prompts import RENDERED
from api.tables import Run, RunEvent
from hillclimb.datasets.lint.tool_tokens import ToolCount
from hillclimb.spec.run import RunSpec

MAX_TOLD = 200
"""Newest words that are looked at; an environment that none of them names counts as unknown."""


def tools_in_project(session: Session, project_id: str, dataset: str) -> dict[str, ToolCount]:
    """Return the newest counts by environment, those of runs on the dataset before any others."""
    reports = _reports(session, project_id)
    own = [
        each for each in reports if (each[1]["data"].get("dataset") or {}).get("name") == dataset
    ]
    return _newest([*own, *reports])


def tools_like(session: Session, project_id: str, spec: RunSpec) -> dict[str, ToolCount]:
    """Return the newest counts of runs whose model and environments are those of the spec."""
    same = (spec.model.source, spec.environment.provider)
    reports = _reports(session, project_id)
    return _newest(
        [
            each
            for each in reports
            if (each[1]["model"]["source"], each[1]["environment"]["provider"]) == same
        ]
    )


_Told = tuple[str, Mapping[str, Any], Mapping[str, Any]]
"""A run's id, its spec, and what it said of its prompts."""


def _reports(session: Session, project_id: str) -> list[_Told]:
    query = (
        select(Run.id, Run.spec, RunEvent.data["environments"])
        .join(RunEvent, (RunEvent.run_id == Run.id) & (RunEvent.type == RENDERED))
        .where(Run.project_id == project_id)
        .order_by(Run.created_at.desc(), Run.id.desc(), RunEvent.seq.desc())
        .limit(MAX_TOLD)
    )
    return [(run_id, spec, envs) for run_id, spec, envs in session.execute(query)]


def _newest(reports: list[_Told]) -> dict[str, ToolCount]:
    counts: dict[str, ToolCount] = {}
    for run_id, spec, envs in reports:
        for env_key, prompts in envs.items():
            if prompts["num_counted"]:
                source = (
                    f"counted by {run_id} ({spec.get('kind', 'train')}, {spec['model']['source']})"
                )
                tokens = prompts["tools_tokens"]["max"]
                counts.setdefault(env_key, ToolCount(tokens=tokens, source=source))
    return counts
