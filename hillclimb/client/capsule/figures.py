"""Computes the pass rates of a capsule's evaluations anew from its outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from hillclimb.blobs.archive.capsule import CapsuleArchive, CapsuleRefused
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.protocol.payloads.studies.capsule import EVALS, OUTCOMES
from hillclimb.stats.pass_rate import PassRate, TaskCount, pass_rate

Place = tuple[int, str, int]
"""Step, decoding and attempt of an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleEval:
    """One evaluation with its pass rates: over all tasks, and per environment."""

    step: int
    decoding: str
    attempt: int
    all: PassRate
    envs: Mapping[str, PassRate]
    at_n: PassRate | None
    """pass@n over all tasks, n being the rollouts per task; None where it is 1."""


@dataclass(slots=True)
class _Tally:
    template: str
    held_out_template: bool
    counts: dict[str, int] = field(
        default_factory=lambda: {"graded": 0, "passed": 0, "missing": 0, "unbegun": 0}
    )


def capsule_evals(archive: CapsuleArchive) -> list[CapsuleEval]:
    """Return the evaluations by step and decoding; of repeated ones, the newest attempt's.

    Raises:
        CapsuleRefused: a row lacks a field, or has another type.
    """
    try:
        thresholds = dict(_thresholds(archive.document(EVALS)))
        with closing(archive.lines(OUTCOMES)) as rows:
            tallies = _tally(rows, thresholds)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CapsuleRefused(
            f"{EVALS} or {OUTCOMES} has a row that is no such row: {error!r}"
        ) from error
    return [_rates(place, list(_counts(tasks))) for place, tasks in sorted(tallies.items())]


def _thresholds(evals: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Place, float]]:
    newest: dict[tuple[int, str], int] = {}
    for each in evals:
        step, decoding = each["step"], each["decoding"]
        newest[step, decoding] = max(each["attempt"], newest.get((step, decoding), 0))
    for each in evals:
        if each["attempt"] == newest[each["step"], each["decoding"]]:
            place = (each["step"], each["decoding"], each["attempt"])
            yield place, float(each["pass_threshold"])


Tallies = dict[Place, dict[tuple[str, str], _Tally]]


def _tally(rows: Iterator[Mapping[str, Any]], thresholds: Mapping[Place, float]) -> Tallies:
    """Count the rows of these evaluations by task, in one pass."""
    tallies: Tallies = {place: {} for place in thresholds}
    for row in rows:
        place = (row["step"], row["decoding"], row["attempt"])
        if row["split"] != "eval" or place not in tallies:
            continue
        task = tallies[place].setdefault(
            (row["env_key"], row["task_key"]), _Tally(row["template"], row["held_out_template"])
        )
        score = row["score"] if row["status"] == OutcomeStatus.GRADED else None
        task.counts["missing" if score is None else "graded"] += 1
        task.counts["passed"] += score is not None and score >= thresholds[place]
        task.counts["unbegun"] += row["stop_reason"] == StopReason.NOT_STARTED
    return tallies


def _counts(tasks: Mapping[tuple[str, str], _Tally]) -> Iterator[TaskCount]:
    for (env_key, task_key), tally in sorted(tasks.items(), key=lambda item: item[0]):
        yield TaskCount(
            task_key=task_key,
            env_key=env_key,
            template=tally.template,
            held_out_template=tally.held_out_template,
            num_graded=tally.counts["graded"],
            num_passed=tally.counts["passed"],
            num_missing=tally.counts["missing"],
            num_unbegun=tally.counts["unbegun"],
        )


def _rates(place: Place, counts: list[TaskCount]) -> CapsuleEval:
    step, decoding, attempt = place
    n = max((count.num_graded + count.num_missing for count in counts), default=1)
    envs = sorted({count.env_key for count in counts})
    return CapsuleEval(
        step=step,
        decoding=decoding,
        attempt=attempt,
        all=pass_rate(counts),
        envs={env: pass_rate([c for c in counts if c.env_key == env]) for env in envs},
        at_n=pass_rate(counts, k=n) if n > 1 else None,
    )
