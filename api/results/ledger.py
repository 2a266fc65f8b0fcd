"""The ledger of a run's compute: what every step and evaluation took, over all attempts.

A step that a later attempt repeats was spent twice, and one that an attempt did not complete was
spent as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.tables import ComputeRecord, Metric, Run
from hillclimb.protocol.events import COMPUTE_FIELDS, NOTHING_SPENT, ComputeSpent

TRAIN = "train"
OF_EVERY_STEP = "timing/step"
"""A metric that every completed step has, also from a trainer that does not count compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One step, or one evaluation, of an attempt with its compute."""

    attempt: int
    step: int
    kind: str
    """`train` or `eval`."""
    decoding: str
    is_complete: bool
    spent: ComputeSpent


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The rows of a run in the order in which they were spent."""

    rows: Sequence[LedgerRow]
    is_complete: bool
    """Whether every completed training step has a row."""

    def spent_by(self, *, attempt: int, step: int) -> ComputeSpent:
        """Return what training had taken when this attempt evaluated at this step.

        Attempts before it count as a whole; evaluations are no training.
        """
        return total(
            row
            for row in self.rows
            if row.kind == TRAIN
            and (row.attempt < attempt or (row.attempt == attempt and row.step <= step))
        )


def read_ledger(session: Session, run_id: str) -> Ledger:
    """Return the ledger of a run; without rows where its trainer does not count compute."""
    records = ComputeRecord
    place = (records.attempt, records.step, records.kind, records.decoding, records.is_complete)
    query = select(*place, *(getattr(records, name) for name in COMPUTE_FIELDS))
    rows = [
        LedgerRow(
            attempt=attempt,
            step=step,
            kind=kind,
            decoding=decoding,
            is_complete=is_complete,
            spent=ComputeSpent.model_construct(**dict(zip(COMPUTE_FIELDS, amounts, strict=True))),
        )
        for attempt, step, kind, decoding, is_complete, *amounts in session.execute(
            query.where(records.run_id == run_id)
        )
    ]
    # The evaluation at a step comes after its update.
    rows.sort(key=lambda row: (row.attempt, row.step, row.kind != TRAIN, row.decoding))
    completed = select(func.count()).where(
        Metric.run_id == run_id, Metric.name == OF_EVERY_STEP, Metric.decoding == TRAIN
    )
    num_counted = sum(row.is_complete and row.kind == TRAIN for row in rows)
    is_complete = num_counted >= (session.scalar(completed) or 0)
    is_own = session.scalar(select(Run.id).where(Run.id == run_id, Run.origin.is_(None)))
    # Nothing says what a past run has spent: no row means unknown there, not zero.
    return Ledger(rows=rows, is_complete=is_complete and (bool(rows) or is_own is not None))


def total(rows: Iterable[LedgerRow]) -> ComputeSpent:
    """Return the sum of the rows."""
    return sum((row.spent for row in rows), NOTHING_SPENT)


def build_compute(session: Session, run_id: str) -> dict[str, Any]:
    """Return the ledger with its totals, per attempt and over all of them."""
    ledger = read_ledger(session, run_id)
    steps = [row.step for row in ledger.rows if row.kind == TRAIN and row.is_complete]
    return {
        "object": "compute",
        "run_id": run_id,
        "is_complete": ledger.is_complete,
        "num_repeated_steps": len(steps) - len(set(steps)),
        **_totals(ledger.rows),
        "attempts": [
            {"attempt": attempt, **_totals(list(rows))}
            for attempt, rows in groupby(ledger.rows, key=lambda row: row.attempt)
        ],
        "rows": _rows(ledger.rows),
    }


def compute_facts(spent: ComputeSpent) -> dict[str, Any]:
    """Return amounts as JSON, with what follows from them."""
    return {name: getattr(spent, name) for name in COMPUTE_FIELDS} | {
        "num_rejected": spent.num_rejected,
        "num_tokens": spent.num_tokens,
        "flops": spent.flops,
    }


def _totals(rows: Sequence[LedgerRow]) -> dict[str, Any]:
    return {
        "training": compute_facts(total(row for row in rows if row.kind == TRAIN)),
        "evaluation": compute_facts(total(row for row in rows if row.kind != TRAIN)),
    }


def _rows(rows: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Return each row with what training had taken up to and with it."""
    cumulative, facts = NOTHING_SPENT, []
    for row in rows:
        if row.kind == TRAIN:
            cumulative += row.spent
        facts.append(
            {
                "attempt": row.attempt,
                "step": row.step,
                "kind": row.kind,
                "decoding": row.decoding,
                "is_complete": row.is_complete,
                **compute_facts(row.spent),
                "cumulative_rollouts": cumulative.num_rollouts,
                "cumulative_tokens": cumulative.num_tokens,
                "cumulative_flops": cumulative.flops,
            }
        )
    return facts
