"""Guards of quality: evaluations that no longer improve, and runs that will hardly improve."""

from __future__ import annotations

from collections.abc import Sequence

from api.results.evals.report import compare_all_tasks, judge_all_tasks
from api.scheduling.limits.guards.condition import Condition, GuardCheck, condition_of
from api.scheduling.limits.guards.readings import MOST_EVALS, Evaluation, Readings
from hillclimb.protocol.payloads.events import GuardEvidence
from hillclimb.spec.monitoring.guards import EvalFlatGuard
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts.compare import LEVEL, Comparison
from hillclimb.stats.verdicts.rule_v2 import RuleV2
from hillclimb.stats.verdicts.stopping.hopeless import ImprovementChance, improvement_chance
from hillclimb.stats.verdicts.verdict import Selection, Verdict

STILL = (Verdict.FLAT, Verdict.FAILING, Verdict.REGRESSED, Verdict.SATURATED)
"""Words after which the pass rate has not been shown to rise."""
ONE_SIDED_LEVEL = RuleV2().one_sided_level(Selection(), level=LEVEL, num_samples=1)
"""Of the evaluation after the last step, which is fixed before the run."""


def check_eval_flat(readings: Readings) -> GuardCheck:
    """Judge the newest evaluations against the one before them."""
    guard = readings.guards.eval_flat
    missing = guard.evaluations + 1 - readings.num_evals
    if missing > 0:
        message = f"{readings.num_evals} of {guard.evaluations + 1} evaluations have ended"
        return _flat(guard, Condition.BETWEEN, message, needs=f"{missing} more evaluations")
    reference, *newest = readings.evaluations(guard.evaluations + 1)
    pairs = [((reference[0], each[0]), (reference[1], each[1])) for each in newest]
    last = compare_all_tasks(*pairs[-1], num_candidates=len(newest))
    words = [judge_all_tasks(*pair, num_candidates=len(newest)) for pair in pairs[:-1]]
    words.append(last.verdict)
    detectable = last.detectable
    is_fine = detectable is not None and detectable <= guard.min_gain
    # At the top there is no gain left to show.
    is_sensitive = is_fine or words[-1] is Verdict.SATURATED
    is_still = all(word in STILL for word in words)
    counts = ", ".join(f"{words.count(word)} {word.value}" for word in dict.fromkeys(words))
    message = (
        f"the last {len(words)} evaluations ({readings.decoding}) against step"
        f" {reference[0].step}: {counts}; a gain of"
        f" {'no size' if detectable is None else f'{detectable:.1%}'} could have been shown"
        f" (limit {guard.min_gain:.0%})"
    )
    return _flat(
        guard,
        condition_of(is_met=is_still and is_sensitive, is_clear=Verdict.IMPROVED in words),
        message,
        steps=(reference[0].step, newest[-1][0].step),
        words=words,
        newest=last,
        needs="evaluations without one that is IMPROVED"
        if is_sensitive
        else "evaluations with more tasks: these are too small to show such a gain",
    )


def _flat(  # noqa: PLR0913 (the parts of one check)
    guard: EvalFlatGuard,
    condition: Condition,
    message: str,
    *,
    needs: str,
    steps: tuple[int | None, int | None] = (None, None),
    words: Sequence[Verdict] = (),
    newest: Comparison | None = None,
) -> GuardCheck:
    return GuardCheck(
        condition=condition,
        evidence=GuardEvidence(
            message=message,
            measured=float(sum(word in STILL for word in words)) if words else None,
            threshold=float(guard.evaluations),
            unit="evaluations",
            n=len(words),
            items="evaluations",
            first_step=steps[0],
            last_step=steps[1],
            figures={}
            if newest is None
            else {
                "change": newest.delta,
                "p_adjusted": newest.p_adjusted,
                "detectable": newest.detectable,
                "tasks": float(newest.num_paired),
            },
        ),
        needs=needs,
    )


def check_hopeless(readings: Readings) -> GuardCheck:
    """Compute the chance that the evaluation after the last step will be IMPROVED."""
    guard = readings.guards.hopeless
    evaluations = readings.evaluations(MOST_EVALS, with_first=True)
    last = evaluations[-1][0].step if evaluations else 0
    missing = guard.min_evaluations + 1 - readings.num_evals
    chance = None
    if missing <= 0 and last < readings.last_step:
        chance = _chance(evaluations, readings.last_step)
    is_late = readings.step >= guard.min_share_done * readings.last_step
    if missing > 0:
        needs = f"{missing} more evaluations"
    elif chance is None:
        needs = "at least 10 tasks with a grade in every evaluation, and steps that are left"
    elif not is_late:
        needs = f"{guard.min_share_done:.0%} of the steps, and a chance below {guard.max_chance:g}"
    else:
        needs = f"a chance below {guard.max_chance:g}"
    return GuardCheck(
        condition=condition_of(
            is_met=chance is not None and is_late and chance.value < guard.max_chance,
            is_clear=chance is not None and chance.value >= 2.0 * guard.max_chance,
        ),
        evidence=GuardEvidence(
            message=_message(chance, guard.max_chance, readings),
            measured=None if chance is None else chance.value,
            threshold=guard.max_chance,
            unit="share",
            n=0 if chance is None else chance.num_tasks,
            items="tasks",
            first_step=evaluations[0][0].step if evaluations else None,
            last_step=last if evaluations else None,
            figures=_figures(chance),
        ),
        needs=needs,
    )


def _chance(evaluations: Sequence[Evaluation], last_step: int) -> ImprovementChance | None:
    shares = [(each.step, _shares(counts)) for each, counts in evaluations]
    return improvement_chance(shares, last_step=last_step, one_sided_level=ONE_SIDED_LEVEL)


def _shares(counts: Sequence[TaskCount]) -> dict[tuple[str, str], float]:
    return {
        (c.env_key, c.task_key): c.num_passed / c.num_graded for c in counts if c.num_graded > 0
    }


def _message(chance: ImprovementChance | None, limit: float, readings: Readings) -> str:
    if chance is None:
        return f"{readings.num_evals} evaluations ({readings.decoding}) have ended"
    return (
        f"the evaluation after step {readings.last_step} will be IMPROVED with a chance of"
        f" {chance.value:.1%} (limit {limit:.0%}): {chance.change:+.1%} so far,"
        f" {chance.projected:+.1%} projected ({chance.projected_low:+.1%} to"
        f" {chance.projected_high:+.1%}), {chance.needed:+.1%} needed"
    )


def _figures(chance: ImprovementChance | None) -> dict[str, float | None]:
    if chance is None:
        return {}
    return {
        "change": chance.change,
        "projected": chance.projected,
        "projected_low": chance.projected_low,
        "projected_high": chance.projected_high,
        "needed": chance.needed,
    }
