"""Training a tiny mixture of experts with the engine's experts replayed, and without.

    python benchmarks/trainer/routing_replay.py [--seeds 3] [--steps 30] [--json FILE]

The engine samples in float32 and the learner computes in bfloat16, so that their routers choose
other experts for some tokens, as two implementations on GPUs do. GRPO on a made-up task (draw even
token ids): 8 prompts x 8 rollouts of 24 tokens a step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from statistics import fmean, pstdev

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.types import Sample, SamplingParams

VOCAB, PROMPT, RESPONSE, PROMPTS, SAMPLES = 512, 16, 24, 8, 8
GAP = "policy/rollout_train_logprobs_abs_diff"
OTHERWISE = "policy/experts/replayed_otherwise"


def model_of(seed: int) -> Qwen3MoeForCausalLM:
    """Four layers of 32 experts, of which a token gets four."""
    torch.manual_seed(seed)
    config = Qwen3MoeConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=32,
        num_experts_per_tok=4,
        moe_intermediate_size=32,
        norm_topk_prob=True,
        max_position_embeddings=128,
        initializer_range=0.08,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return Qwen3MoeForCausalLM(config).train(mode=False)


async def rollout(
    engine: TorchEngine, prompt: tuple[int, ...], name: str, seed: int, *, replays: bool
) -> Sample:
    """Draw one rollout."""
    params = SamplingParams(
        temperature=1.0,
        max_new_tokens=RESPONSE,
        seed=seed,
        routes_from=0 if replays else None,
    )
    sample = await engine.sample(prompt, params, session=name, prefix_key=name.partition("/")[0])
    engine.release(name)
    return sample


def reward(sample: Sample) -> float:
    """Share of even token ids."""
    return fmean(token % 2 == 0 for token in sample.token_ids)


def sequence(prompt: tuple[int, ...], sample: Sample, advantage: float) -> TrainingSequence:
    """Return the rollout as the learner takes it."""
    return TrainingSequence(
        token_ids=prompt + sample.token_ids,
        action_mask=(False,) * PROMPT + (True,) * RESPONSE,
        logprobs=(0.0,) * PROMPT + sample.logprobs,
        prompt_length=PROMPT,
        advantage=advantage,
        temperature=1.0,
        routes=sample.routes,
    )


async def train(seed: int, steps: int, *, replays: bool) -> list[dict[str, float]]:
    """Train once; return each step's reward and gaps."""
    model = model_of(seed)
    options = TorchEngineOptions(
        num_sessions=PROMPTS * SAMPLES, max_length=64, records_routes=replays
    )
    engine = TorchEngine(model.config, model.state_dict(), options=options)
    learner = InlineLearner(
        model,
        LearnerOptions(
            algorithm=AlgorithmSpec(),
            optimizer=OptimizerSpec(lr=1e-3),
            learner=LearnerSpec(policy_dtype="bfloat16", routing_replay=replays),
            total_steps=steps,
        ),
    )
    prompts_drawn = torch.Generator().manual_seed(seed)
    history = []
    for step in range(steps):
        await engine.update(learner.publish().weights, step)
        sequences, rewards = [], []
        for number in range(PROMPTS):
            prompt = tuple(torch.randint(0, VOCAB, (PROMPT,), generator=prompts_drawn).tolist())
            samples = await asyncio.gather(
                *(
                    rollout(engine, prompt, f"{step}.{number}/{each}", each, replays=replays)
                    for each in range(SAMPLES)
                )
            )
            scores = [reward(each) for each in samples]
            mean, spread = fmean(scores), pstdev(scores) + 1e-6
            rewards += scores
            sequences += [
                sequence(prompt, each, (score - mean) / spread)
                for each, score in zip(samples, scores, strict=True)
            ]
        metrics = await learner.step(Batch(mini_batches=(tuple(sequences),)))
        history.append(
            {
                "reward": fmean(rewards),
                "gap_mean": metrics[f"{GAP}_mean"],
                "gap_max": metrics[f"{GAP}_max"],
                "grad_norm": metrics["policy/grad_norm"],
                "otherwise": metrics.get(OTHERWISE, 0.0),
            }
        )
    await engine.close()
    return history


def summary(histories: list[list[dict[str, float]]]) -> dict[str, float]:
    """Means over steps and seeds; the reward is that of the last five steps."""
    every = [step for history in histories for step in history]
    last = [fmean(step["reward"] for step in history[-5:]) for history in histories]
    return {
        "first_reward": fmean(history[0]["reward"] for history in histories),
        "last_reward": fmean(last),
        "last_reward_spread": pstdev(last),
        "gap_mean": fmean(step["gap_mean"] for step in every),
        "gap_max": fmean(step["gap_max"] for step in every),
        "grad_norm": fmean(step["grad_norm"] for step in every),
        "replayed_otherwise": fmean(step["otherwise"] for step in every),
    }


def main() -> None:
    """Train with replay and without, and print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for replays in (False, True):
        histories = [
            asyncio.run(train(seed, arguments.steps, replays=replays))
            for seed in range(arguments.seeds)
        ]
        name = "replay" if replays else "own"
        results[name] = summary(histories)
        print(name, json.dumps(results[name]), flush=True)
    if arguments.json:
        settings = {"seeds": arguments.seeds, "steps": arguments.steps}
        arguments.json.write_text(json.dumps({"settings": settings} | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
