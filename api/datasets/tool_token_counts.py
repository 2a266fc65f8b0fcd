"""Token counts of tools, measured in runs of a project; lint uses them by default.

Every trainer reports the token counts of its prompts before its first rollout, and a preview
reports nothing else; the newest report on an environment counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.results.preflight.prompts import RENDERED
from api.tables import Run, RunEvent
from hillclimb.datasets.lint.tool_tokens import ToolCount
from hillclimb.spec.run import RunSpec

MAX_REPORTS = 200
"""Newest reports that are read; an environment in none of them counts as unknown."""


def tools_in_project(session: Session, project_id: str, dataset: str) -> dict[str, ToolCount]:
    """Return the newest counts by environment; runs on the dataset come first."""
    reports = _reports(session, project_id)
    own = [
        report
        for report in reports
        if (report[1]["data"].get("dataset") or {}).get("name") == dataset
    ]
    return _newest([*own, *reports])


def tool_token_counts(session: Session, project_id: str, spec: RunSpec) -> dict[str, ToolCount]:
    """Return the newest counts of runs with the spec's model and environment provider."""
    same = (spec.model.source, spec.environment.provider)
    reports = _reports(session, project_id)
    return _newest(
        [
            report
            for report in reports
            if (report[1]["model"]["source"], report[1]["environment"]["provider"]) == same
        ]
    )


_PromptReport = tuple[str, Mapping[str, Any], Mapping[str, Any]]
"""A run's id, its spec, and the token counts of its prompts by environment."""


def _reports(session: Session, project_id: str) -> list[_PromptReport]:
    query = (
        select(Run.id, Run.spec, RunEvent.data["environments"])
        .join(RunEvent, (RunEvent.run_id == Run.id) & (RunEvent.type == RENDERED))
        .where(Run.project_id == project_id)
        .order_by(Run.created_at.desc(), Run.id.desc(), RunEvent.seq.desc())
        .limit(MAX_REPORTS)
    )
    return [(run_id, spec, envs) for run_id, spec, envs in session.execute(query)]


def _newest(reports: list[_PromptReport]) -> dict[str, ToolCount]:
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
