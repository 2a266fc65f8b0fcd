"""Made-up rollouts for learners: what a run might have recorded, from a seed."""

from __future__ import annotations

import random
from functools import cache

from transformers import Qwen3ForCausalLM

from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from trainer.algo.sequences import Batch, TrainingSequence


@cache
def sampler() -> Qwen3ForCausalLM:
    """The policy that the rollouts were sampled from."""
    return tiny_model()


@cache
def sequence(
    *, prompt: int, sample: int, length: int, advantage: float, temperature: float = 1.0
) -> TrainingSequence:
    """A rollout of two turns with an observation of three tokens between, on-policy at T."""
    token_ids = random_ids(9 + prompt, seed=prompt) + random_ids(length, seed=100 + sample)
    start = 9 + prompt
    mask = [False] * start + [True] * length
    mask[start + 3 : start + 6] = [False] * 3
    logprobs = reference_logprobs(sampler(), token_ids, temperature=temperature).tolist()
    return TrainingSequence(
        token_ids=tuple(token_ids),
        action_mask=tuple(mask),
        logprobs=tuple(
            value if acted else 0.0 for value, acted in zip([0.0, *logprobs], mask, strict=True)
        ),
        prompt_length=start,
        advantage=advantage,
        temperature=temperature,
    )


def batch(*, temperature: float = 1.0) -> Batch:
    """Seven rollouts of three prompts in one mini-batch."""
    return Batch(
        mini_batches=(
            tuple(
                sequence(
                    prompt=index % 3,
                    sample=index,
                    length=8 + 5 * index,
                    advantage=(-1.0) ** index * (0.5 + 0.1 * index),
                    temperature=temperature,
                )
                for index in range(7)
            ),
        )
    )


def recorded_batches(count: int) -> list[Batch]:
    """Steps of one or two mini-batches of 1 to 8 rollouts; some hold a single rollout."""
    rng = random.Random(7)
    return [
        Batch(
            mini_batches=tuple(
                tuple(
                    sequence(
                        prompt=rng.randrange(3),
                        sample=rng.randrange(50),
                        length=rng.randint(7, 40),
                        advantage=rng.choice((-1.0, -0.3, 0.4, 1.1)),
                        temperature=rng.choice((0.8, 1.0)),
                    )
                    for _ in range(1 if step % 5 == 0 else rng.randint(2, 8))
                )
                for _ in range(rng.randint(1, 2))
            )
        )
        for step in range(count)
    ]
