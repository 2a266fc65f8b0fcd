"""The statistics against values of scipy and statsmodels (`benchmarks/statistics/reference.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hillclimb.stats.evidence import holm, log_e_value
from hillclimb.stats.intervals import exact_low, independent_trials, wilson
from hillclimb.stats.paired import mcnemar_exact, sign_flip_p_value
from hillclimb.stats.pass_rate import pass_at_k, variance_per_prompt
from hillclimb.stats.power import detectable_paired, detectable_unpaired, paired_size, unpaired_size
from hillclimb.stats.signal_estimate import signal_of_task
from hillclimb.stats.signal_report import StepSignal, report_signal
from hillclimb.stats.verdicts.stopping.futility import DecisionChance
from hillclimb.stats.verdicts.unpaired import fisher_exact

FILE = Path(__file__).parents[3] / "benchmarks" / "results" / "statistics_reference.json"
REFERENCE: dict[str, Any] = json.loads(FILE.read_text())


def holm_of_list(p_values: list[float]) -> list[float]:
    adjusted = holm({str(index): p_value for index, p_value in enumerate(p_values)})
    return [adjusted[str(index)] for index in range(len(p_values))]


def trend(points: list[tuple[int, int, float]]) -> tuple[float, float, float]:
    """Return slope and interval of the report of steps with these grades and sums of scores."""
    steps = [
        StepSignal(
            step=step, env_key="booking", num_rollouts=graded, num_graded=graded,
            score_sum=total, num_groups=1, num_mixed=1, num_all_zero=0, num_all_one=0,
            variance_sum=0.25,
        )
        for step, graded, total in points
    ]  # fmt: skip
    found = report_signal(steps, clip_ratio=None).trend
    assert found is not None
    return found.slope, found.low, found.high


def decision_chance(planned: int, level: float, steps: list[int]) -> float:
    chance = DecisionChance(planned=planned, one_sided_level=level)
    for step in steps:
        chance.add(Fraction(step))
    return chance.value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "wilson": wilson,
    "exact_low": exact_low,
    "pass_at_k": pass_at_k,
    "signal_of_task": signal_of_task,
    "independent_trials": lambda n, tasks, rate, k: independent_trials([n] * tasks, rate, k),
    "mcnemar_exact": mcnemar_exact,
    "sign_flip_p_value_of_eighths": lambda steps: sign_flip_p_value(
        [Fraction(step, 8) for step in steps]
    ),
    "holm": holm_of_list,
    "unpaired_size": unpaired_size,
    "paired_size": lambda gain, lost, level: paired_size(gain, lost, level=level),
    "trend": trend,
    "variance_per_prompt": variance_per_prompt,
    "fisher_exact": lambda showing, tasks: fisher_exact(tuple(showing), tuple(tasks)),
    "sign_flip_p_value_of_many": lambda gained, lost: sign_flip_p_value(
        [Fraction(3, 8)] * gained + [Fraction(-3, 8)] * lost
    ),
    "detectable_paired": lambda tasks, lost, level: detectable_paired(
        tasks, lost=lost, level=level
    ),
    "detectable_unpaired": lambda tasks, before: detectable_unpaired(tasks, before=before),
    "decision_chance": decision_chance,
    "log_e_value_of_quarters": lambda steps: log_e_value([Fraction(step, 4) for step in steps]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_statistic_equals_its_reference_to_a_billionth(name: str) -> None:
    cases = REFERENCE[name]
    assert cases
    for arguments, expected in cases:
        assert FUNCTIONS[name](*arguments) == pytest.approx(expected, rel=1e-9, abs=1e-9), arguments


def test_every_reference_is_compared_and_names_its_source() -> None:
    assert set(REFERENCE) == {"versions", *FUNCTIONS}
    assert set(REFERENCE["versions"]) == {"numpy", "scipy", "statsmodels"}
