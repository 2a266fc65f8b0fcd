"""The table of a campaign: pass rates per model, dataset and decoding, repeats pooled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from api.admission.campaigns import store
from api.admission.campaigns.cell_states import status_of
from api.results.evals.report import comparison_facts
from api.results.evals.store import count_outcomes, list_evals
from api.results.evals.summary import breakdowns, rate_facts
from api.tables.studies.campaigns import Campaign
from hillclimb.protocol.payloads.studies.campaigns import CellState
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts.compare import VERDICT_RULE, compare
from hillclimb.stats.verdicts.verdict import Selection

Place = tuple[str, str | None, str]
"""Model, dataset and decoding."""


@dataclass(slots=True, kw_only=True)
class _Row:
    temperature: float
    num_repeats: int = 0
    num_done: int = 0
    counts: list[TaskCount] = field(default_factory=list)


def build_table(session: Session, campaign: Campaign, *, k: int = 1) -> dict[str, Any]:
    """Return the campaign's results so far.

    Verdicts are of pass@k against the first model on the same dataset under the same decoding,
    corrected for the choice among the other models. A decoding with fewer than k rollouts per task
    has none.
    """
    cells = store.list_cells(session, campaign)
    rows = _rows(session, cells)
    baseline = campaign.spec["models"][0]["name"]
    others = max(1, len(campaign.spec["models"]) - 1)
    return {
        "campaign_id": campaign.id,
        "name": campaign.name,
        "baseline": baseline,
        "k": k,
        "rule": VERDICT_RULE,
        "is_complete": all(status_of(each).state is CellState.DONE for each in cells),
        "data": [
            _facts(place, row, rows.get((baseline, *place[1:])), baseline, others=others, k=k)
            for place, row in rows.items()
        ],
    }


def _rows(session: Session, cells: Sequence[store.FilledCell]) -> dict[Place, _Row]:
    rows: dict[Place, _Row] = {}
    for each in cells:
        done = _counts(session, each)
        for decoding in each.cell.spec["eval"]["decodings"]:
            place = (each.member.model, each.member.dataset, decoding["name"])
            row = rows.setdefault(place, _Row(temperature=decoding["temperature"]))
            row.num_repeats += 1
            if decoding["name"] in done:
                row.num_done += 1
                row.counts = pooled([*row.counts, *done[decoding["name"]]])
    return rows


def _counts(session: Session, each: store.FilledCell) -> Mapping[str, Sequence[TaskCount]]:
    """Return the counts by decoding of a cell that is done; a cancelled run's would be partial."""
    if each.run is None or status_of(each).state is not CellState.DONE:
        return {}
    evals = list_evals(session, each.run.id)
    counts = count_outcomes(session, each.run.id, evals)
    return {decoding: tasks for (_, decoding), tasks in counts.items()}


def pooled(counts: Iterable[TaskCount]) -> list[TaskCount]:
    """Add up the counts of equal tasks, sorted by environment and task."""
    groups: dict[tuple[str, str], list[TaskCount]] = defaultdict(list)
    for count in counts:
        groups[count.env_key, count.task_key].append(count)
    return [
        replace(
            group[0],
            num_graded=sum(count.num_graded for count in group),
            num_passed=sum(count.num_passed for count in group),
            num_missing=sum(count.num_missing for count in group),
            num_unbegun=sum(count.num_unbegun for count in group),
        )
        for _, group in sorted(groups.items())
    ]


def _facts(
    place: Place, row: _Row, base: _Row | None, baseline: str, *, others: int, k: int
) -> dict[str, Any]:
    model, dataset, decoding = place
    compared = None
    if base is not None and model != baseline and row.counts and base.counts:
        chosen = Selection(num_candidates=others)
        compared = comparison_facts(compare(base.counts, row.counts, selection=chosen, k=k).overall)
    return {
        "model": model,
        "dataset": dataset,
        "decoding": decoding,
        "temperature": row.temperature,
        "num_repeats": row.num_repeats,
        "num_done": row.num_done,
        "all": rate_facts(row.counts, k),
        **breakdowns(row.counts, k),
        "against_baseline": compared,
    }
