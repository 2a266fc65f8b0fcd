"""The conclusion of a training run, in one line: the verdict, or why nothing was learned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hillclimb.spec.backend.counts import counted


class ConclusionWord(StrEnum):
    """The kinds of conclusions."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    FLAT = "flat"
    """The evaluations show no change."""
    INCONCLUSIVE = "inconclusive"
    """The evaluations are too small to tell."""
    NOT_EVALUATED = "not_evaluated"
    """It learned, but no two evaluations say what."""
    NO_GRADIENT = "no_gradient"
    """No step had a gradient: nothing was learned."""
    NO_STEPS = "no_steps"
    """No training step ended."""


NOTHING_LEARNED = frozenset({ConclusionWord.NO_GRADIENT, ConclusionWord.NO_STEPS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigures:
    """Sums over the training steps of a run."""

    num_steps: int = 0
    num_rollouts: int = 0
    num_graded: int = 0
    num_groups: int = 0
    """Groups with two grades or more."""
    num_mixed: int = 0
    """Groups whose scores differ: only these have a gradient."""
    num_all_zero: int = 0
    num_all_one: int = 0
    mean_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalFigures:
    """The first and the last evaluation of a run under one decoding; pass@1 in [0, 1]."""

    decoding: str
    before_step: int
    after_step: int
    before: float | None
    """None with a single evaluation."""
    after: float | None
    n: int
    """Tasks graded on both sides."""
    verdict: str | None
    """None with a single evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The word and the line."""

    word: ConclusionWord
    sentence: str

    @property
    def has_learned(self) -> bool:
        """False if no step could change the policy."""
        return self.word not in NOTHING_LEARNED


def conclude(training: TrainingFigures, evaluation: EvalFigures | None) -> Conclusion:
    """Return what a training run that ended, or is paused, has shown so far."""
    if training.num_steps == 0:
        return Conclusion(
            word=ConclusionWord.NO_STEPS, sentence="nothing was learned: no training step ended"
        )
    if training.num_mixed == 0:
        sentence = f"nothing was learned: no step had a gradient: {_why_no_gradient(training)}"
        return Conclusion(word=ConclusionWord.NO_GRADIENT, sentence=sentence)
    if evaluation is None or evaluation.before is None or evaluation.after is None:
        share = training.num_mixed / training.num_groups
        return Conclusion(
            word=ConclusionWord.NOT_EVALUATED,
            sentence=f"{share:.0%} of groups had a gradient in"
            f" {counted(training.num_steps, 'step')}, but no two evaluations say"
            " what was learned: set eval.before_training, or hillclimb eval RUN@STEP",
        )
    return _by_evaluations(evaluation)


def _why_no_gradient(training: TrainingFigures) -> str:
    rollouts = counted(training.num_rollouts, "rollout")
    if training.num_graded == 0:
        return (
            f"none of {rollouts} has a grade; hillclimb trajectories RUN says why, hillclimb probe"
            " SPEC tests the environments"
        )
    if training.num_groups == 0:
        return "no group had two graded rollouts; set rollout.n_samples_per_prompt to 2 or more"
    if training.num_all_zero == training.num_groups:
        return (
            f"0 % of {rollouts} passed; try easier tasks, a reward for parts of a task, a stronger"
            " model, or hillclimb probe SPEC to find tasks that pass sometimes"
        )
    if training.num_all_one == training.num_groups:
        return (
            f"100 % of {rollouts} passed; try harder tasks, or hillclimb probe SPEC to find tasks"
            " that fail sometimes"
        )
    mean = training.mean_score or 0.0
    return (
        f"the scores of each group were equal (mean {mean:.2f} over {rollouts}); try a larger"
        " rollout.n_samples_per_prompt, or tasks of medium difficulty"
    )


def _by_evaluations(evaluation: EvalFigures) -> Conclusion:
    assert evaluation.before is not None
    assert evaluation.after is not None
    figures = (
        f"pass@1 {100 * evaluation.before:.1f} → {100 * evaluation.after:.1f} %"
        f" ({evaluation.decoding}, n = {evaluation.n}, steps {evaluation.before_step} →"
        f" {evaluation.after_step})"
    )
    match evaluation.verdict:
        case "improved":
            return Conclusion(word=ConclusionWord.IMPROVED, sentence=f"improved: {figures}")
        case "failing":
            return Conclusion(
                word=ConclusionWord.FLAT,
                sentence=f"at most 5 % pass after training: {figures}; try easier tasks",
            )
        case "regressed":
            return Conclusion(word=ConclusionWord.REGRESSED, sentence=f"regressed: {figures}")
        case "inconclusive" | "no_eval":
            return Conclusion(
                word=ConclusionWord.INCONCLUSIVE,
                sentence=f"inconclusive: {figures}; more eval tasks would tell"
                " (data.eval_tasks_per_env)",
            )
        case "saturated":
            return Conclusion(
                word=ConclusionWord.FLAT,
                sentence=f"saturated: {figures}; harder tasks would show more",
            )
    return Conclusion(word=ConclusionWord.FLAT, sentence=f"flat: {figures}")
