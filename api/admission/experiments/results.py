"""The results of an experiment: its arms, their changes, and the verdict on its hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from api.admission.experiments import store
from api.admission.experiments.comparing import ArmAt, Difference, difference, first_of, last_of
from api.admission.experiments.evidence import (
    ArmEvidence,
    baseline_of,
    default_decoding,
    read_arms,
    variants_of,
)
from api.admission.experiments.readings import ExperimentVerdict, WatchedReading, judge
from api.admission.experiments.request import ExperimentText
from api.results.comparison.config_diff import config_diff
from api.results.evals.report import comparison_facts
from api.tables import Run
from api.tables.studies.experiments import Experiment
from hillclimb.stats.pass_rate import mean_pass_at_k, of_env
from hillclimb.stats.verdicts.compare import VERDICT_RULE
from hillclimb.stats.verdicts.experiments.families import family_change, family_rate, spread_of
from hillclimb.stats.verdicts.experiments.watched import EXPERIMENT_RULE

Json = dict[str, Any]
UNSHOWN = ("/schedule/seed", "/data/dataset/id", "/data/dataset/digest")
"""Differences between seeds, and what follows from the version of a dataset."""


def build_results(session: Session, experiment: Experiment, *, decoding: str | None = None) -> Json:
    """Return the results so far, by default under the decoding with the highest temperature."""
    placed = store.list_runs(session, experiment)
    arms = read_arms(session, placed)
    decoding = decoding or default_decoding(arms)
    text = ExperimentText.model_validate(experiment.text)
    verdict = judge(session, text, arms, decoding)
    reference, words = _reference(session, experiment, arms)
    return {
        "key": experiment.key,
        "rule": EXPERIMENT_RULE,
        "paired_rule": VERDICT_RULE,
        "decoding": decoding,
        "word": verdict.word.value,
        "why": verdict.why,
        "is_complete": bool(placed) and not any(arm.num_live for arm in arms),
        "reference": words,
        "arms": [_arm(arm, arms, decoding, reference) for arm in arms],
        "verdicts": _verdict_facts(verdict),
    }


def _reference(
    session: Session, experiment: Experiment, arms: Sequence[ArmEvidence]
) -> tuple[Run | None, str | None]:
    """Return the run whose spec the arms' are compared with, and what it is, in words.

    The baseline's; without one, that of the parent's last configuration.
    """
    baseline = baseline_of(arms)
    if baseline is not None and baseline.runs:
        return baseline.runs[0], baseline.arm
    if experiment.parent_id is None:
        return None, None
    parent = session.get_one(Experiment, experiment.parent_id)
    runs = [each.run for each in store.list_runs(session, parent) if each.run is not None]
    return (runs[-1], parent.key) if runs else (None, None)


def _arm(
    arm: ArmEvidence, arms: Sequence[ArmEvidence], decoding: str | None, reference: Run | None
) -> Json:
    last = last_of(arm, decoding) if decoding else None
    first = first_of(arm, decoding) if decoding else None
    baseline = baseline_of(arms)
    base = last_of(baseline, decoding) if baseline and decoding else None
    num_arms = len(variants_of(arms))
    is_variant = arm is not baseline
    return {
        "arm": arm.arm,
        "role": arm.role,
        "settings": arm.members[0].place.settings,
        "num_live": arm.num_live,
        "runs": [_run(arm, number, last) for number in range(len(arm.members))],
        "first": _rates(first) if first else None,
        "last": _rates(last) if last else None,
        "own_change": _changes(first, last, num_arms=1) if first and last else None,
        "against_baseline": _changes(base, last, num_arms=num_arms)
        if base and last and is_variant
        else None,
        "config_diff": _reported_diff(reference, arm.runs[0]) if reference and arm.runs else [],
    }


def _run(arm: ArmEvidence, number: int, last: ArmAt | None) -> Json:
    member = arm.members[number]
    rate = None
    if last is not None and member.run is not None:
        for each in arm.evaluated:
            if each.run.id == member.run.id and (last.step, last.decoding) in each.evals:
                rate = mean_pass_at_k(arm.source.counts(each, last.step, last.decoding))
    return {
        "number": member.place.number,
        "run_id": member.run.id if member.run else None,
        "seed": member.place.seed,
        "state": member.status.state,
        "status": member.run.status if member.run else None,
        "pass_at_1": rate,
    }


def _rates(at: ArmAt) -> Json:
    runs = at.runs()
    envs = sorted({count.env_key for counts in runs for count in counts})
    return {
        "step": at.step,
        "all": rate_facts_of(runs),
        "envs": {key: rate_facts_of([of_env(counts, key) for counts in runs]) for key in envs},
    }


def rate_facts_of(runs: Sequence[Any]) -> Json:
    """Return pass@1 over the runs of an arm as JSON, with the spread between them."""
    spread = spread_of([v for counts in runs if (v := mean_pass_at_k(counts)) is not None])
    rate = family_rate(runs)
    return {
        "value": rate.value,
        "low": rate.low,
        "high": rate.high,
        "num_tasks": rate.num_tasks,
        "num_runs": spread.num_runs,
        "sd": spread.sd,
        "least": spread.least,
        "most": spread.most,
    }


def _changes(before: ArmAt, after: ArmAt, *, num_arms: int) -> Json:
    both = difference(before, after, num_arms=num_arms)
    sides = before.runs(), after.runs()
    tables = both.table.by_env if both.table else {}
    envs = {}
    for key in tables:
        old, new = ([of_env(counts, key) for counts in side] for side in sides)
        change = asdict(family_change(old, new))
        envs[key] = _change_facts(change, comparison_facts(tables[key]))
    return {
        "before_step": before.step,
        "after_step": after.step,
        "all": _change_facts(asdict(both.change), _overall(both)),
        "envs": envs,
    }


def _overall(both: Difference) -> Json | None:
    return comparison_facts(both.table.overall) if both.table else None


def _change_facts(change: Json, paired: Json | None) -> Json:
    return {key: change[key] for key in ("value", "low", "high", "covers_seeds")} | {
        "paired": paired
    }


def _reported_diff(reference: Run, run: Run) -> list[Json]:
    if reference.id == run.id:
        return []
    differences = config_diff(reference.spec, run.spec)
    return [each for each in differences if each["pointer"] not in UNSHOWN]


def _verdict_facts(verdict: ExperimentVerdict) -> list[Json]:
    return [
        {
            "arm": each.arm,
            "word": each.word.value,
            "readings": [_reading_facts(reading) for reading in each.readings],
        }
        for each in verdict.arms
    ]


def _reading_facts(reading: WatchedReading) -> Json:
    figure = reading.figure
    low, high = figure.interval or (None, None)
    return {
        "sentence": reading.watched.sentence,
        "is_change": reading.watched.is_change,
        "reading": reading.reading.value,
        "value": figure.value,
        "low": low,
        "high": high,
        "paired_verdict": figure.word.value if figure.word else None,
        "why": reading.why,
    }
