"""Engine and learner give the same log-probs over trajectories of several turns."""

from __future__ import annotations

import asyncio

import pytest
import torch

from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import random_ids, tiny_model
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.torch.engine import TorchEngine
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.types import SamplingParams

PROMPTS = [tuple(random_ids(12 + 3 * prompt, seed=prompt)) for prompt in range(3)]


async def trajectory(engine: TorchEngine, prompt: int, sample: int) -> TrainingSequence:
    """Four turns of up to 15 sampled tokens, with observations of 1 to 20 tokens between."""
    ids, mask, logprobs = list(PROMPTS[prompt]), [False] * len(PROMPTS[prompt]), []
    logprobs = [0.0] * len(ids)
    for turn in range(4):
        drawn = await engine.sample(
            tuple(ids),
            SamplingParams(
                temperature=0.8,
                max_new_tokens=5 + (sample + 3 * turn) % 11,
                stop_token_ids=(3,),
                seed=100 * sample + turn,
            ),
            session=f"{prompt}-{sample}",
            prefix_key=f"{prompt}",
        )
        ids += drawn.token_ids
        mask += [True] * len(drawn.token_ids)
        logprobs += drawn.logprobs
        observation = random_ids(1 + (7 * sample + turn) % 20, seed=1000 + turn)
        ids += observation
        mask += [False] * len(observation)
        logprobs += [0.0] * len(observation)
    return TrainingSequence(
        token_ids=tuple(ids),
        action_mask=tuple(mask),
        logprobs=tuple(logprobs),
        prompt_length=len(PROMPTS[prompt]),
        advantage=(-1.0) ** sample,
        temperature=0.8,
    )


async def sampled(engine: TorchEngine) -> Batch:
    """Twelve trajectories of three prompts, sampled at the same time."""
    made = await asyncio.gather(*(trajectory(engine, index % 3, index // 3) for index in range(12)))
    return Batch(mini_batches=(tuple(made),))


@pytest.mark.parametrize("chunk_tokens", [16, 1024])
async def test_before_and_after_updates_the_loss_sees_what_the_engine_drew(
    chunk_tokens: int,
) -> None:
    learner = InlineLearner(
        tiny_model(),
        LearnerOptions(
            optimizer=OptimizerSpec(lr=3e-3),
            learner=LearnerSpec(logprob_chunk_tokens=chunk_tokens, max_micro_tokens=200),
        ),
    )
    config = tiny_model().config
    engine = TorchEngine(config, learner.publish().weights)
    for version in range(3):
        metrics = await learner.step(await sampled(engine))
        assert metrics["policy/rollout_train_logprobs_abs_diff_max"] < 1e-4
        assert metrics["policy/ppo_clip_ratio"] == 0.0
        published = learner.publish()
        assert published.version == version + 1
        await engine.update(published.weights, published.version)
    await engine.close()


async def test_a_stale_engine_is_seen_in_the_difference() -> None:
    learner = InlineLearner(tiny_model(), LearnerOptions(optimizer=OptimizerSpec(lr=1e-2)))
    engine = TorchEngine(tiny_model().config, learner.publish().weights)
    await learner.step(await sampled(engine))
    metrics = await learner.step(await sampled(engine))
    assert metrics["policy/rollout_train_logprobs_abs_diff_max"] > 1e-2
    await engine.close()


async def test_scoring_agrees_token_by_token() -> None:
    learner = InlineLearner(tiny_model())
    engine = TorchEngine(tiny_model().config, learner.publish().weights)
    (sequences,) = (await sampled(engine)).mini_batches
    for item in sequences:
        mine, its = await learner.logprobs(item.token_ids), await engine.logprobs(item.token_ids)
        torch.testing.assert_close(mine, its, atol=1e-4, rtol=0)
    await engine.close()
