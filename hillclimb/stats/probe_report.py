"""Probe report: per environment a verdict on whether training there can work, with its figures.

The one piece of code behind `probe.completed`, the API and the command line. Everything is
computed from stored outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.stats.pass_rate import PassRate, TaskCount, count_tasks, pass_rate
from hillclimb.stats.signal_estimate import (
    GROUP_SIZES,
    SignalShare,
    largest_counted_size,
    signal_share,
)

PROBE_RULE = "v3"
"""Changes with any change of the rule; stored beside every verdict. Spelt out in
docs/preflight.md."""
UNHEALTHY_FROM = 0.1
"""Share of started rollouts that met an infra error or have no grade."""
WORTHWHILE_FROM = 0.1
"""Share of groups with signal: training is worthwhile where the interval lies above it, worthless
where it lies below, and undecided where it contains it."""
ALWAYS_FROM, NEVER_UP_TO = 0.9, 0.1
"""Between these pass rates, groups without signal come from tasks that always pass and tasks that
never do."""
MIN_TASKS = 5
"""Fewer tasks with two graded rollouts are inconclusive."""
ENOUGH_SIGNAL, NEARLY_ALL = 0.5, 0.9
"""The recommended group size is the smallest at which half of the groups carry signal, or 90 % of
those that do at the largest size."""


class ProbeVerdict(StrEnum):
    """Expected use of training on an environment, judged before training."""

    UNHEALTHY = "unhealthy"
    """The environment fails too often to be trained on."""
    SATURATED = "saturated"
    """Nearly every group passes as a whole: nothing is left to learn."""
    HOPELESS = "hopeless"
    """Nearly every group fails as a whole: nothing can be learned from these tasks yet."""
    SPLIT = "split"
    """Nearly every task always passes or never does: train on other tasks, or from a better model.
    """
    INFORMATIVE = "informative"
    """A sufficient share of groups carries signal."""
    INCONCLUSIVE = "inconclusive"
    """Too few tasks or rollouts, or the missing outcomes could change the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Rollouts of an environment that were started, and those of them that had an infra error."""

    num_begun: int
    num_troubled: int
    """Met an infra error, also one that a retry got past, or have no grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvProbe:
    """Probe results of one environment."""

    verdict: ProbeVerdict
    why: str
    """The verdict as a sentence with its numbers."""
    pass_rate: PassRate
    begun: Begun
    signal: SignalShare
    """At the group size that the spec trains with."""
    shares: tuple[SignalShare, ...]
    """At every group size of `GROUP_SIZES`."""
    advised_group_size: int | None
    """See `advise`; None where too few groups carry signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """All environments, and advice on the run's `n_samples_per_prompt`."""

    group_size: int
    """`rollout.n_samples_per_prompt` of the spec: the group size that verdicts refer to."""
    environments: Mapping[str, EnvProbe]
    advised_group_size: int | None
    """Over the informative environments; None where there is none."""
    advice: str
    rule: str = PROBE_RULE


def report_rows(
    rows: Sequence[OutcomeRow], *, pass_threshold: float, group_size: int
) -> ProbeReport:
    """Return the report of a probe from its outcome rows."""
    begun: dict[str, list[OutcomeRow]] = {}
    for row in rows:
        begun.setdefault(row.env_key, [])
        if row.stop_reason is not StopReason.NOT_STARTED:
            begun[row.env_key].append(row)
    return report_probe(
        count_tasks(rows, pass_threshold=pass_threshold),
        {
            key: Begun(num_begun=len(group), num_troubled=sum(map(_is_troubled, group)))
            for key, group in begun.items()
        },
        group_size=group_size,
    )


def report_probe(
    counts: Sequence[TaskCount], begun: Mapping[str, Begun], *, group_size: int
) -> ProbeReport:
    """Return the report of a probe from counts per task and per environment."""
    environments = {
        key: _probe_env([c for c in counts if c.env_key == key], begun[key], group_size)
        for key in sorted(begun)
    }
    size, advice = _advise_run(environments)
    return ProbeReport(
        group_size=group_size, environments=environments, advised_group_size=size, advice=advice
    )


def report_facts(report: ProbeReport) -> dict[str, Any]:
    """Return a report as JSON; shares lie in [0, 1]."""
    return asdict(report) | {
        "environments": {
            key: _env_facts(probe) for key, probe in sorted(report.environments.items())
        },
    }


def advise(shares: Sequence[SignalShare]) -> int | None:
    """Return the smallest counted size at which enough groups carry signal.

    Enough is half of them, or 90 % of the share at the largest counted size where that is less.
    Larger groups cost more rollouts and add little signal; most smaller ones carry none. None where
    too few groups carry signal even at the largest counted size.
    """
    return _smallest({s.group_size: s.value for s in shares if s.value is not None})


def _smallest(values: Mapping[int, float]) -> int | None:
    """Return the smallest of these group sizes, by their share with signal, as `advise` says."""
    most = values[max(values)] if values else 0.0
    if most < WORTHWHILE_FROM:
        return None
    enough = min(ENOUGH_SIGNAL, NEARLY_ALL * most)
    return min(size for size, value in values.items() if value >= enough)


def _is_troubled(row: OutcomeRow) -> bool:
    return row.num_infra_retries > 0 or row.status is not OutcomeStatus.GRADED


def _probe_env(counts: Sequence[TaskCount], begun: Begun, group_size: int) -> EnvProbe:
    usable = [count for count in counts if count.num_graded >= 2]
    rate, signal = pass_rate(counts), signal_share(counts, group_size)
    shares = tuple(signal_share(counts, size) for size in GROUP_SIZES)
    verdict = _judge(counts, begun, group_size)
    return EnvProbe(
        verdict=verdict,
        why=_why(verdict, begun, rate, _largest_counted(counts, group_size), group_size)
        + _sides(verdict, usable),
        pass_rate=rate,
        begun=begun,
        signal=signal,
        shares=shares,
        advised_group_size=advise(shares),
    )


def _largest_counted(counts: Sequence[TaskCount], group_size: int) -> SignalShare:
    """Return the share at this size, or at the largest counted one where that is smaller.

    A larger group never carries less signal, so the latter is a lower bound.
    """
    return signal_share(counts, min(group_size, largest_counted_size(counts)) or group_size)


def _judge(counts: Sequence[TaskCount], begun: Begun, group_size: int) -> ProbeVerdict:
    """Apply rule v3; a verdict on groups requires that no missing outcome could change it.

    Tasks that were never started are left out: their choice was drawn before any result.
    """
    if begun.num_begun and begun.num_troubled >= UNHEALTHY_FROM * begun.num_begun:
        return ProbeVerdict.UNHEALTHY
    started = [count for count in counts if count.is_begun]
    scenarios = [started]
    if any(count.num_missing for count in started):
        scenarios += [[c.with_missing(passed=passed) for c in started] for passed in (False, True)]
    verdicts = {_judge_groups(scenario, group_size) for scenario in scenarios}
    return verdicts.pop() if len(verdicts) == 1 else ProbeVerdict.INCONCLUSIVE


def _judge_groups(counts: Sequence[TaskCount], group_size: int) -> ProbeVerdict:
    rate = pass_rate(counts).value
    if rate is None or sum(count.num_graded >= 2 for count in counts) < MIN_TASKS:
        return ProbeVerdict.INCONCLUSIVE
    share = _largest_counted(counts, group_size)
    if share.low >= WORTHWHILE_FROM:
        return ProbeVerdict.INFORMATIVE
    if share.high >= WORTHWHILE_FROM or share.group_size < group_size:
        return ProbeVerdict.INCONCLUSIVE
    if rate >= ALWAYS_FROM:
        return ProbeVerdict.SATURATED
    return ProbeVerdict.HOPELESS if rate <= NEVER_UP_TO else ProbeVerdict.SPLIT


def _why(
    verdict: ProbeVerdict, begun: Begun, rate: PassRate, signal: SignalShare, group_size: int
) -> str:
    if verdict is ProbeVerdict.UNHEALTHY:
        return (
            f"{begun.num_troubled} of {begun.num_begun} rollouts met an infra error or have no"
            " grade: fix the environment first"
        )
    if signal.value is None or rate.value is None:
        return "no task has two graded rollouts"
    share = (
        f"{signal.value:.0%} of groups of {signal.group_size} are expected to carry signal"
        f" ({signal.low:.0%}–{signal.high:.0%}, {signal.num_tasks} tasks)"
    )
    if signal.group_size < group_size:
        share += f"; the share for groups of {group_size} is unknown"
    missing = rate.num_rollouts - rate.num_graded
    if verdict is ProbeVerdict.INCONCLUSIVE:
        cause = f", and {missing} of {rate.num_rollouts} rollouts have no outcome"
        return f"{share}{cause if missing else ''}: {_remedy(begun, rate, group_size)}"
    return f"{share}; pass@1 is {rate.value:.0%} over {rate.num_graded} rollouts"


def _remedy(begun: Begun, rate: PassRate, group_size: int) -> str:
    """Return the change of the probe that could make an inconclusive verdict conclusive."""
    if begun.num_begun < rate.num_rollouts:
        return "give it more time (probe.budget_minutes, schedule.step_timeout_s)"
    if rate.num_rollouts < group_size * rate.num_tasks_total:
        return f"raise probe.n_samples_per_prompt to {group_size}"
    return "probe more tasks"


def _sides(verdict: ProbeVerdict, counts: Sequence[TaskCount]) -> str:
    if verdict is not ProbeVerdict.SPLIT:
        return ""
    always = sum(count.num_passed == count.num_graded for count in counts)
    never = sum(count.num_passed == 0 for count in counts)
    return f", of {len(counts)} tasks {always} passed each time and {never} never"


def _advise_run(environments: Mapping[str, EnvProbe]) -> tuple[int | None, str]:
    """Advise on the mean over the informative environments: each gets as many prompts."""
    informative = [e for e in environments.values() if e.verdict is ProbeVerdict.INFORMATIVE]
    if not informative:
        return None, "no environment is known to be informative: no group size is recommended"
    reached = _means([each.shares for each in informative])
    size, largest = _smallest(reached), max(reached)
    if size is None:
        return None, (
            f"no group of up to {largest} carries enough signal, and larger ones are unknown: keep"
            " rollout.n_samples_per_prompt"
        )
    return size, (
        f"rollout.n_samples_per_prompt {size}: {reached[size]:.0%} of groups carry signal in the"
        f" informative environments ({reached[largest]:.0%} at {largest})"
    )


def _means(environments: Sequence[Sequence[SignalShare]]) -> dict[int, float]:
    """Return the mean over environments by group size, where it is known in each of them."""
    means: dict[int, float] = {}
    for shares in zip(*environments, strict=True):
        values = [share.value for share in shares if share.value is not None]
        if len(values) == len(shares):
            means[shares[0].group_size] = fmean(values)
    return means


def _env_facts(probe: EnvProbe) -> dict[str, Any]:
    rate = probe.pass_rate
    return asdict(probe) | {
        "verdict": probe.verdict.value,
        "pass_rate": asdict(rate) | {"coverage": rate.coverage},
    }
