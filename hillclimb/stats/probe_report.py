"""What a probe found in each environment, and the word for whether training there can teach.

The one piece of code behind `probe.completed`, the API and the command line. Everything is
computed from stored outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from trainer.contract.groupsignal import (
    GROUP_SIZES,
    Band,
    SignalShare,
    fit_tasks,
    signal_share,
)
from trainer.contract.outcomes import OutcomeRow, OutcomeStatus, StopReason
from trainer.contract.passrate import PassRate, TaskCount, count_tasks, pass_rate

PROBE_RULE = "v2"
"""Changes with any change of the rule; stored beside every word. docs/preflight.md spells it."""
UNHEALTHY_FROM = 0.1
"""Share of begun rollouts that met an infra error or have no grade."""
WORTHWHILE_FROM = 0.1
"""Share of groups with signal: training is worthwhile where the interval lies above it, worthless
where it lies below, and nothing is known where it lies on both sides."""
ALWAYS_FROM, NEVER_UP_TO = 0.9, 0.1
"""Between these pass rates, groups without signal come from tasks that always pass and tasks that
never do."""
MIN_TASKS = 5
"""Fewer tasks with two graded rollouts decide nothing."""
ENOUGH_SIGNAL, NEARLY_ALL = 0.5, 0.9
"""A group size is advised from which on half of the groups carry signal, or 90 % of those that
carry it at the largest size."""


class ProbeVerdict(StrEnum):
    """What training on an environment can be expected to do, before any of it."""

    UNHEALTHY = "unhealthy"
    """The environment fails too often to be trained on."""
    SATURATED = "saturated"
    """Nearly every group passes as a whole: nothing is left to learn."""
    HOPELESS = "hopeless"
    """Nearly every group fails as a whole: nothing can be learned from these tasks yet."""
    SPLIT = "split"
    """Nearly every task always passes or never does: other tasks, or a better start, would teach.
    """
    INFORMATIVE = "informative"
    """A worthwhile share of groups carries signal."""
    INCONCLUSIVE = "inconclusive"
    """Too few tasks or rollouts, or the missing outcomes could change the word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Rollouts of an environment that were begun, and those of them that met trouble."""

    num_begun: int
    num_troubled: int
    """Met an infra error, though a retry may have mended it, or have no grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvProbe:
    """What a probe found in one environment."""

    verdict: ProbeVerdict
    why: str
    """The verdict in a sentence, with its numbers."""
    pass_rate: PassRate
    begun: Begun
    signal: SignalShare
    """At the group size that the spec trains with."""
    shares: tuple[SignalShare, ...]
    """At every group size of `GROUP_SIZES`."""
    bands: tuple[Band, ...]
    """Estimated distribution of the pass probability over tasks; empty without graded rollouts."""
    advised_group_size: int | None
    """See `advise`; None without a worthwhile share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Every environment, and advice on the one `n_samples_per_prompt` of the run."""

    group_size: int
    """`rollout.n_samples_per_prompt` of the spec: the groups that verdicts are about."""
    environments: Mapping[str, EnvProbe]
    advised_group_size: int | None
    """Over the informative environments; None without one."""
    advice: str
    rule: str = PROBE_RULE


def report_rows(
    rows: Sequence[OutcomeRow], *, pass_threshold: float, group_size: int
) -> ProbeReport:
    """Report a probe, given its rows."""
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
    """Report a probe, given the counts of its tasks and of its rollouts by environment."""
    found = {
        key: _probe_env([c for c in counts if c.env_key == key], begun[key], group_size)
        for key in sorted(begun)
    }
    size, advice = _advise_run(found)
    return ProbeReport(
        group_size=group_size, environments=found, advised_group_size=size, advice=advice
    )


def report_facts(report: ProbeReport) -> dict[str, Any]:
    """Return a report as JSON: shares in [0, 1]."""
    return asdict(report) | {
        "environments": {
            key: _env_facts(each) for key, each in sorted(report.environments.items())
        },
    }


def advise(shares: Sequence[SignalShare]) -> int | None:
    """Return the smallest size at which enough groups carry signal.

    Enough is half of them, or 90 % of what the largest size reaches where that is less. Larger
    groups cost more rollouts each and add little; smaller ones are mostly thrown away. Where not
    even the largest size is worthwhile, none is advised.
    """
    known = [(each.group_size, each.value) for each in shares if each.value is not None]
    if not known:
        return None
    most = max(known)[1]
    if most < WORTHWHILE_FROM:
        return None
    enough = min(ENOUGH_SIGNAL, NEARLY_ALL * most)
    return next((size for size, value in sorted(known) if value >= enough), None)


def _is_troubled(row: OutcomeRow) -> bool:
    return row.num_infra_retries > 0 or row.status is not OutcomeStatus.GRADED


def _probe_env(counts: Sequence[TaskCount], begun: Begun, group_size: int) -> EnvProbe:
    usable = [count for count in counts if count.num_graded >= 2]
    fit = fit_tasks(usable) if usable else None
    rate, signal = pass_rate(counts), signal_share(counts, group_size, fit)
    shares = tuple(signal_share(counts, size, fit) for size in GROUP_SIZES)
    verdict = _judge(counts, begun, group_size)
    return EnvProbe(
        verdict=verdict,
        why=_why(verdict, begun, rate, signal) + _sides(verdict, usable),
        pass_rate=rate,
        begun=begun,
        signal=signal,
        shares=shares,
        bands=fit.bands() if fit else (),
        advised_group_size=advise(shares),
    )


def _judge(counts: Sequence[TaskCount], begun: Begun, group_size: int) -> ProbeVerdict:
    """Rule v2; a verdict on groups stands only if no missing outcome could change it.

    Tasks that were never begun are left out: which those are was drawn before anything was known.
    """
    if begun.num_begun and begun.num_troubled >= UNHEALTHY_FROM * begun.num_begun:
        return ProbeVerdict.UNHEALTHY
    met = [count for count in counts if count.is_begun]
    scenarios = [met]
    if any(count.num_missing for count in met):
        scenarios += [[c.with_missing(passed=passed) for c in met] for passed in (False, True)]
    verdicts = {_judge_groups(each, group_size) for each in scenarios}
    return verdicts.pop() if len(verdicts) == 1 else ProbeVerdict.INCONCLUSIVE


def _judge_groups(counts: Sequence[TaskCount], group_size: int) -> ProbeVerdict:
    rate = pass_rate(counts).value
    if rate is None or sum(count.num_graded >= 2 for count in counts) < MIN_TASKS:
        return ProbeVerdict.INCONCLUSIVE
    share = signal_share(counts, group_size)
    if share.low >= WORTHWHILE_FROM:
        return ProbeVerdict.INFORMATIVE
    if share.high >= WORTHWHILE_FROM:
        return ProbeVerdict.INCONCLUSIVE
    if rate >= ALWAYS_FROM:
        return ProbeVerdict.SATURATED
    return ProbeVerdict.HOPELESS if rate <= NEVER_UP_TO else ProbeVerdict.SPLIT


def _why(verdict: ProbeVerdict, begun: Begun, rate: PassRate, signal: SignalShare) -> str:
    if verdict is ProbeVerdict.UNHEALTHY:
        return (
            f"{begun.num_troubled} of {begun.num_begun} rollouts met an infra error or have no"
            " grade: mend the environment first"
        )
    if signal.value is None or rate.value is None:
        return "no task has two graded rollouts"
    share = (
        f"{signal.value:.0%} of groups of {signal.group_size} are expected to carry signal"
        f" ({signal.low:.0%}–{signal.high:.0%}, {signal.num_tasks} tasks)"
    )
    missing = rate.num_rollouts - rate.num_graded
    if verdict is ProbeVerdict.INCONCLUSIVE:
        cause = f", and {missing} of {rate.num_rollouts} rollouts have no outcome"
        is_cut = begun.num_begun < rate.num_rollouts
        remedy = (
            "give it more time (probe.budget_minutes, schedule.step_timeout_s)"
            if is_cut
            else "probe more tasks"
        )
        return f"{share}{cause if missing else ''}: {remedy}"
    return f"{share}; pass@1 is {rate.value:.0%} over {rate.num_graded} rollouts"


def _sides(verdict: ProbeVerdict, counts: Sequence[TaskCount]) -> str:
    if verdict is not ProbeVerdict.SPLIT:
        return ""
    always = sum(count.num_passed == count.num_graded for count in counts)
    never = sum(count.num_passed == 0 for count in counts)
    return f", of {len(counts)} tasks {always} passed each time and {never} never"


def _advise_run(found: Mapping[str, EnvProbe]) -> tuple[int | None, str]:
    """Advise on the mean over the informative environments: each gets as many prompts."""
    informative = [e for e in found.values() if e.verdict is ProbeVerdict.INFORMATIVE]
    if not informative:
        return None, "no environment is known to be informative: there is nothing to advise on"
    means = tuple(_mean(column) for column in zip(*(e.shares for e in informative), strict=True))
    size = advise(means)
    reached = {each.group_size: each.value or 0.0 for each in means}
    if size is None:
        return None, (
            f"no group of up to {GROUP_SIZES[-1]} carries enough signal: keep"
            " rollout.n_samples_per_prompt"
        )
    return size, (
        f"rollout.n_samples_per_prompt {size}: {reached[size]:.0%} of groups carry signal in the"
        f" informative environments ({reached[GROUP_SIZES[-1]]:.0%} at {GROUP_SIZES[-1]})"
    )


def _mean(shares: Sequence[SignalShare]) -> SignalShare:
    values = [share.value for share in shares if share.value is not None]
    return SignalShare(
        group_size=shares[0].group_size,
        value=fmean(values) if values else None,
        low=fmean(share.low for share in shares),
        high=fmean(share.high for share in shares),
        num_tasks=sum(share.num_tasks for share in shares),
        method=shares[0].method,
    )


def _env_facts(found: EnvProbe) -> dict[str, Any]:
    rate = found.pass_rate
    return asdict(found) | {
        "verdict": found.verdict.value,
        "pass_rate": asdict(rate) | {"coverage": rate.coverage},
    }
