"""Behaviour of an evaluation's policy: means over its rollouts, per environment."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from api.results.evals.store import Records, of_eval, outcomes_of
from api.tables import Eval
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason

ALL = "all"


def behaviour(
    session: Session, evaluation: Eval, verifier: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the figures per environment, and under `all` over all of them."""
    records = outcomes_of(verifier)
    started = records.stop_reason != StopReason.NOT_STARTED
    query = (
        select(records.env_key, *_figures(evaluation.pass_threshold, records))
        .where(*of_eval(evaluation.run_id, evaluation).where(records), started)
        .group_by(func.rollup(records.env_key))
    )
    return {
        ALL if key is None else key: {
            name: None if value is None else float(value)
            for name, value in zip(NAMES, values, strict=True)
        }
        for key, *values in session.execute(query)
    }


NAMES = (
    "num_rollouts",
    "turns",
    "tool_calls",
    "tool_errors",
    "repeated_calls",
    "tokens_of_passes",
    "tokens_of_fails",
    "duration_s",
)


def _figures(pass_threshold: float, records: Records) -> tuple[ColumnElement[Any], ...]:
    graded = records.status == OutcomeStatus.GRADED
    passed = graded & (records.score >= pass_threshold)
    failed = graded & (records.score < pass_threshold)
    return (
        func.count(),
        func.avg(records.num_turns),
        func.avg(records.num_tool_calls),
        func.avg(records.num_tool_errors),
        func.avg(records.num_repeated_calls),
        func.avg(records.num_tokens).filter(passed),
        func.avg(records.num_tokens).filter(failed),
        func.avg(records.duration_s),
    )
