"""Draws follow the distribution and depend on nothing but seed and position."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainer.engines.torch.drawing import draw, uniforms
from trainer.types import SamplingParams


def params(**settings: float) -> SamplingParams:
    return SamplingParams(**({"temperature": 1.0, "max_new_tokens": 1} | settings))  # type: ignore[arg-type]


def test_uniforms_are_uniform_over_seeds_and_over_positions() -> None:
    for numbers in (uniforms(range(20_000), [5] * 20_000), uniforms([5] * 20_000, range(20_000))):
        counts, _ = np.histogram(numbers, bins=20, range=(0.0, 1.0))
        chi_squared = float(((counts - 1000.0) ** 2 / 1000.0).sum())
        assert chi_squared < 43.8  # 0.1 % quantile of 19 degrees of freedom
        assert numbers.min() > 0.0
        assert numbers.max() < 1.0


def test_draws_follow_the_distribution_at_the_temperature() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    rows = 20_000
    drawn = draw(
        logits.expand(rows, -1), [params(temperature=0.5, seed=seed) for seed in range(rows)],
        [3] * rows,
    )  # fmt: skip
    expected = (logits / 0.5).softmax(-1)
    found = torch.bincount(torch.tensor(drawn.token_ids), minlength=4) / rows
    torch.testing.assert_close(found, expected, atol=0.012, rtol=0)
    torch.testing.assert_close(
        torch.tensor(drawn.logprobs), expected.log()[torch.tensor(drawn.token_ids)]
    )


def test_greedy_takes_the_best_token_and_reports_temperature_one() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    drawn = draw(logits, [params(temperature=0.0), params(temperature=0.0)], [1, 1])
    assert drawn.token_ids == [2, 0]
    expected = logits.log_softmax(-1).max(-1).values.tolist()
    assert drawn.logprobs == pytest.approx(expected)


def test_greedy_and_sampled_rows_share_a_batch() -> None:
    logits = torch.tensor([0.0, 0.1, 0.2]).expand(200, -1)
    rows = [params(temperature=float(seed % 2), seed=seed) for seed in range(200)]
    drawn = draw(logits, rows, [1] * 200)
    assert set(drawn.token_ids[::2]) == {2}
    assert set(drawn.token_ids[1::2]) == {0, 1, 2}


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((2000, 50), -torch.inf)
    logits[:, 20] = 0.0
    drawn = draw(logits, [params(seed=seed) for seed in range(2000)], [1] * 2000)
    assert set(drawn.token_ids) == {20}


def test_top_p_keeps_the_nucleus_and_renormalises() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.3, 0.1])
    rows = [params(top_p=0.7, seed=seed) for seed in range(500)] + [params(seed=1)]
    drawn = draw(probabilities.log().expand(501, -1), rows, [1] * 501)
    assert set(drawn.token_ids[:500]) == {1, 2}
    expected = {1: 0.625, 2: 0.375}
    for token, logprob in zip(drawn.token_ids[:500], drawn.logprobs[:500], strict=True):
        assert np.exp(logprob) == pytest.approx(expected[token], rel=1e-4)
    assert np.exp(drawn.logprobs[500]) == pytest.approx(
        float(probabilities[drawn.token_ids[500]]), rel=1e-4
    )
