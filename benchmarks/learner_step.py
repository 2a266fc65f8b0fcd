"""Seconds of one learner step: 20 prompts x 8 rollouts of about 500 tokens, tiny model.

    python benchmarks/learner_step.py [--threads 1] [--max-micro-tokens 4096]

`--no-sharing` gives every rollout a prompt of its own, so that no prompt is computed once for a
group: the difference is what sharing is worth.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time

import torch
from engine_throughput import PROMPT_TOKENS, VOCAB, tiny_model

from hillclimb.spec.training.learner import LearnerSpec
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions


def rollout(prompt: tuple[int, ...], rng: random.Random, advantage: float) -> TrainingSequence:
    """Two to five turns of 15 to 55 sampled tokens, each followed by 40 of observation."""
    ids, mask = list(prompt), [False] * len(prompt)
    for _ in range(rng.randint(2, 5)):
        length = rng.randint(15, 55)
        ids += [rng.randrange(VOCAB) for _ in range(length + 40)]
        mask += [True] * length + [False] * 40
    return TrainingSequence(
        token_ids=tuple(ids),
        action_mask=tuple(mask),
        logprobs=tuple(-7.6 if acted else 0.0 for acted in mask),
        prompt_length=len(prompt),
        advantage=advantage,
        temperature=1.0,
    )


def make_batch(*, sharing: bool) -> Batch:
    """Two mini-batches of 10 prompts."""
    rng = random.Random(0)
    mini_batches = []
    for _ in range(2):
        sequences = []
        for _ in range(10):
            prompt = tuple(rng.randrange(VOCAB) for _ in range(PROMPT_TOKENS))
            for sample in range(8):
                if not sharing:
                    prompt = tuple(rng.randrange(VOCAB) for _ in range(PROMPT_TOKENS))
                sequences.append(rollout(prompt, rng, 1.0 if sample % 2 else -1.0))
        mini_batches.append(tuple(sequences))
    return Batch(mini_batches=tuple(mini_batches))


def main() -> None:
    """Time three steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-micro-tokens", type=int, default=4096)
    parser.add_argument("--no-sharing", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    options = LearnerOptions(learner=LearnerSpec(max_micro_tokens=given.max_micro_tokens))
    learner = InlineLearner(tiny_model(), options)
    batch = make_batch(sharing=not given.no_sharing)
    tokens = sum(len(item.token_ids) for part in batch.mini_batches for item in part)
    for _ in range(3):
        started, cpu = time.perf_counter(), time.process_time()
        asyncio.run(learner.step(batch))
        print(
            f"{batch.num_sequences} rollouts, {tokens} tokens: {time.perf_counter() - started:.2f}"
            f" s wall, {time.process_time() - cpu:.2f} s cpu"
        )


if __name__ == "__main__":
    main()
