"""The data of an experiment's figures: learning curves, signal by windows, sizes of the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Integer, select
from sqlalchemy.orm import Session

from api.admission.experiments import store
from api.admission.experiments.evidence import ArmEvidence, default_decoding, read_arms
from api.results.signal import read_steps
from api.tables import RunEvent
from api.tables.studies.experiments import Experiment
from hillclimb.stats.pass_rate import of_env
from hillclimb.stats.signal_report import StepSignal
from hillclimb.stats.verdicts.experiments.families import Runs, family_rate

Json = dict[str, Any]
NUM_WINDOWS = 10
"""Windows of a signal map."""


def build_figures(session: Session, experiment: Experiment, *, decoding: str | None = None) -> Json:
    """Return what the figures of an experiment show."""
    arms = read_arms(session, store.list_runs(session, experiment))
    decoding = decoding or default_decoding(arms)
    signals = {arm.arm: _signals(session, arm) for arm in arms}
    last = max((each.step for steps in signals.values() for each in steps), default=0)
    return {
        "key": experiment.key,
        "decoding": decoding,
        "arms": [
            {
                "arm": arm.arm,
                "role": arm.role,
                "num_train_tasks": _num_train_tasks(session, arm),
                **_curves(arm, decoding),
                "signal": _windows(signals[arm.arm], last),
            }
            for arm in arms
        ],
    }


def _curves(arm: ArmEvidence, decoding: str | None) -> Json:
    if decoding is None:
        return {"curve": [], "env_curves": {}}
    for each in arm.evaluated:
        arm.source.read_all(each, decoding)
    steps = sorted({step for each in arm.evaluated for step in each.steps(decoding)})
    at = {step: arm.counts(step, decoding) for step in steps}
    envs = sorted({c.env_key for runs in at.values() for counts in runs for c in counts})
    groups = {
        key: {step: [of_env(counts, key) for counts in runs] for step, runs in at.items()}
        for key in envs
    }
    return {
        "curve": _points(at),
        "env_curves": {key: _points(runs) for key, runs in groups.items()},
    }


def _points(at: dict[int, Any]) -> list[Json]:
    points = []
    for step, runs in at.items():
        graded: Runs = [counts for counts in runs if any(count.num_graded for count in counts)]
        rate = family_rate(graded)
        if rate.value is not None:
            points.append(
                {
                    "step": step,
                    "value": rate.value,
                    "low": rate.low,
                    "high": rate.high,
                    "num_runs": len(graded),
                    "num_tasks": rate.num_tasks,
                }
            )
    return points


def _signals(session: Session, arm: ArmEvidence) -> list[StepSignal]:
    return [each for run in arm.runs for each in read_steps(session, run.id)]


def _windows(steps: Sequence[StepSignal], last: int) -> Json:
    """Return the windows by environment; they divide the steps of all arms evenly."""
    if not last:
        return {}
    number = min(NUM_WINDOWS, last)
    edges = [round(last * index / number) for index in range(number + 1)]
    envs: dict[str, list[StepSignal]] = defaultdict(list)
    for each in steps:
        envs[each.env_key].append(each)
    return {
        key: [
            _window([each for each in group if low < each.step <= high], low + 1, high)
            for low, high in pairwise(edges)
        ]
        for key, group in sorted(envs.items())
    }


def _window(steps: Sequence[StepSignal], first: int, last: int) -> Json:
    num_groups = sum(each.num_groups for each in steps)
    mixed = sum(each.num_mixed for each in steps)
    return {
        "first_step": first,
        "last_step": last,
        "signal_ratio": mixed / num_groups if num_groups else None,
        "num_groups": num_groups,
    }


def _num_train_tasks(session: Session, arm: ArmEvidence) -> int | None:
    """Return the number that the newest trainer of the arm announced."""
    ids = [run.id for run in arm.runs]
    number = RunEvent.data["num_train_tasks"].astext.cast(Integer)
    query = (
        select(number)
        .where(RunEvent.run_id.in_(ids), RunEvent.type == "trainer.started")
        .order_by(RunEvent.at.desc())
        .limit(1)
    )
    return session.scalar(query) if ids else None
