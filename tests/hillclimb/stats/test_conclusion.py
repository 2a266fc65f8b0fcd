"""The line that concludes a training run."""

from __future__ import annotations

import pytest

from hillclimb.stats.conclusion import (
    ConclusionWord,
    EvalFigures,
    TrainingFigures,
    conclude,
)

LEARNING = TrainingFigures(
    num_steps=12, num_rollouts=768, num_graded=768, num_groups=96, num_mixed=24, mean_score=0.5
)


def evaluated(verdict: str | None, before: float | None = 0.29) -> EvalFigures:
    return EvalFigures(
        decoding="sampled",
        before_step=0,
        after_step=12,
        before=before,
        after=0.61,
        n=300,
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"num_all_zero": 96}, "0 % of 768 rollouts passed; try easier tasks"),
        ({"num_all_one": 96}, "100 % of 768 rollouts passed; try harder tasks"),
        ({"num_graded": 0, "num_groups": 0}, "none of 768 rollouts has a grade"),
        ({"num_groups": 0}, "set rollout.n_samples_per_prompt to 2 or more"),
        ({"num_all_zero": 50, "num_all_one": 46}, "equal (mean 0.50 over 768 rollouts)"),
        ({"mean_score": 0.0}, "equal (mean 0.00 over 768 rollouts)"),
        ({"num_rollouts": 1, "num_graded": 0}, "none of 1 rollout has a grade"),
    ],
)
def test_without_a_gradient_nothing_was_learned_and_the_line_says_why(
    changes: dict[str, int], part: str
) -> None:
    figures = {field: getattr(LEARNING, field) for field in LEARNING.__slots__}
    training = TrainingFigures(**figures | {"num_mixed": 0} | changes)
    concluded = conclude(training, evaluated("flat"))
    assert concluded.word is ConclusionWord.NO_GRADIENT
    assert not concluded.has_learned
    assert part in concluded.sentence


def test_without_a_step_nothing_was_learned() -> None:
    concluded = conclude(TrainingFigures(), None)
    assert (concluded.word, concluded.has_learned) == (ConclusionWord.NO_STEPS, False)
    assert concluded.sentence == "nothing was learned: no training step ended"


@pytest.mark.parametrize(
    ("verdict", "word", "sentence"),
    [
        ("improved", "improved", "improved: {}"),
        ("regressed", "regressed", "regressed: {}"),
        ("flat", "flat", "flat: {}"),
        ("saturated", "flat", "saturated: {}; harder tasks would show more"),
        ("failing", "flat", "at most 5 % pass after training: {}; try easier tasks"),
        ("inconclusive", "inconclusive", "inconclusive: {}; more eval tasks would tell (data."),
        ("no_eval", "inconclusive", "inconclusive: {}; more eval tasks would tell (data."),
    ],
)
def test_with_two_evaluations_the_verdict_concludes(verdict: str, word: str, sentence: str) -> None:
    concluded = conclude(LEARNING, evaluated(verdict))
    assert concluded.word == word
    assert concluded.has_learned
    figures = "pass@1 29.0 → 61.0 % (sampled, n = 300, steps 0 → 12)"
    assert concluded.sentence.startswith(sentence.format(figures))


@pytest.mark.parametrize("evaluation", [None, evaluated(None, before=None)])
def test_without_two_evaluations_nobody_knows_what_was_learned(
    evaluation: EvalFigures | None,
) -> None:
    concluded = conclude(LEARNING, evaluation)
    assert concluded.word is ConclusionWord.NOT_EVALUATED
    assert "25% of groups had a gradient in 12 steps" in concluded.sentence
