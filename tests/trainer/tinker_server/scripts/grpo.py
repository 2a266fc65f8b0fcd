"""GRPO as a user of Tinker's SDK has it: nothing here knows of our server.

Address and key come from TINKER_BASE_URL and TINKER_API_KEY, the model is the server's first. The
reward is the share of the letter `e`, and a reference sampler measures how far the policy has gone.
"""

from __future__ import annotations

import asyncio
import statistics
import sys

import tinker
from tinker import types

GROUP_SIZE = 8
PROMPTS = ("a", "the room", "Book the")
MAX_TOKENS = 12


async def main(num_steps: int, seed: int = 1) -> dict[str, list[float]]:
    """Train for a number of steps; return mean reward and distance to the reference by step.

    What is drawn follows from the seed: a few steps of few samples may else unlearn all reward.
    """
    service = tinker.ServiceClient()
    capabilities = await service.get_server_capabilities_async()
    base_model = capabilities.supported_models[0].model_name
    assert base_model is not None
    training = await service.create_lora_training_client_async(
        base_model=base_model, rank=8, seed=seed
    )
    tokenizer = training.get_tokenizer()
    reference = await training.save_weights_and_get_sampling_client_async()
    rewards: list[float] = []
    distances: list[float] = []
    for step in range(num_steps):
        sampler = await training.save_weights_and_get_sampling_client_async()
        prompts = [types.ModelInput.from_ints(tokenizer.encode(each)) for each in PROMPTS]
        groups = await asyncio.gather(
            *(draw(sampler, prompt, 1_000 * seed + step) for prompt in prompts)
        )
        data, step_rewards = [], []
        for prompt, response in zip(prompts, groups, strict=True):
            scores = [reward(tokenizer.decode(each.tokens)) for each in response.sequences]
            step_rewards += scores
            mean = statistics.mean(scores)
            data += [
                datum(prompt, sequence, score - mean)
                for sequence, score in zip(response.sequences, scores, strict=True)
            ]
        forward = await training.forward_backward_async(data, "importance_sampling")
        optim = await training.optim_step_async(types.AdamParams(learning_rate=3e-2))
        await forward.result_async()
        await optim.result_async()
        rewards.append(statistics.mean(step_rewards))
        distances.append(await distance(reference, prompts[0], groups[0].sequences[0]))
    return {"rewards": rewards, "distances": distances}


async def draw(
    sampler: tinker.SamplingClient, prompt: types.ModelInput, seed: int
) -> types.SampleResponse:
    """Draw a group."""
    params = types.SamplingParams(max_tokens=MAX_TOKENS, temperature=1.0, seed=seed)
    return await sampler.sample_async(prompt, num_samples=GROUP_SIZE, sampling_params=params)


async def distance(
    reference: tinker.SamplingClient, prompt: types.ModelInput, sequence: types.SampledSequence
) -> float:
    """Return the mean difference of the policy's and the reference's log-probs of a sequence."""
    whole = types.ModelInput.from_ints([*prompt.to_ints(), *sequence.tokens])
    before = (await reference.compute_logprobs_async(whole))[prompt.length :]
    now = sequence.logprobs or []
    return statistics.mean(a - (b or 0.0) for a, b in zip(now, before, strict=True))


def reward(text: str) -> float:
    """Return the share of the letter."""
    return text.count("e") / MAX_TOKENS


def datum(
    prompt: types.ModelInput, sequence: types.SampledSequence, advantage: float
) -> types.Datum:
    """The prompt's targets have advantage 0."""
    tokens = [*prompt.to_ints(), *sequence.tokens]
    num_given = prompt.length - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": [0.0] * num_given + list(sequence.logprobs or []),
            "advantages": [0.0] * num_given + [advantage] * len(sequence.tokens),
        },  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(main(int(sys.argv[1])))}\n")
