"""Builds the payloads of experiments from their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from api.admission.experiments import store
from api.tables.studies.experiments import Experiment
from hillclimb.protocol.payloads.studies.experiments import (
    ExperimentPayload,
    ExperimentRunPayload,
    ExperimentSummary,
)


def summarise_experiments(
    session: Session, experiments: Sequence[Experiment]
) -> list[ExperimentSummary]:
    """Return experiments with their parents' keys and their numbers of runs."""
    parents = store.keys_of(session, experiments)
    numbers = store.num_runs(session, experiments)
    return [
        ExperimentSummary.model_validate(
            _facts(each, parents.get(each.parent_id or ""), numbers.get(each.id, 0))
        )
        for each in experiments
    ]


def describe_experiment(session: Session, experiment: Experiment) -> ExperimentPayload:
    """Return an experiment with what people wrote and its runs."""
    parents = store.keys_of(session, [experiment])
    runs = [_describe_run(each) for each in store.list_runs(session, experiment)]
    facts = _facts(experiment, parents.get(experiment.parent_id or ""), len(runs))
    return ExperimentPayload.model_validate({**facts, "text": experiment.text, "runs": runs})


def _describe_run(placed: store.PlacedRun) -> ExperimentRunPayload:
    place, run, status = placed.place, placed.run, placed.status
    return ExperimentRunPayload.model_validate(
        {
            "number": place.number,
            "run_id": run.id if run else None,
            "name": run.name if run else None,
            "role": place.role,
            "arm": place.arm,
            "seed": place.seed,
            "settings": place.settings,
            "state": status.state,
            "why": status.why,
        }
    )


def _facts(experiment: Experiment, parent: str | None, num_runs: int) -> dict[str, Any]:
    return {
        "key": experiment.key,
        "title": experiment.text["title"],
        "parent": parent,
        "num_runs": num_runs,
        "created_at": experiment.created_at,
        "created_by": experiment.created_by,
        "updated_at": experiment.updated_at,
    }
