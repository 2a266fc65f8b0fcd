"""Sampled tokens per second of the torch engine on agent-like episodes, beside transformers.

    python benchmarks/engine_throughput.py [--threads 1] [--groups 20] [--samples 8]

The model has the shape of the shipped tiny one with random weights. Episodes are uneven: several
turns of random length, each followed by an observation. `transformers.generate` gets the easiest
comparable work: one turn, all prompts of equal length, no new prompt text between turns.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.types import SamplingParams

VOCAB = 2048
PROMPT_TOKENS = 300
OBSERVATION_TOKENS = 40
NEW_TOKENS = (15, 55)
TURNS = (2, 5)


def tiny_model() -> Qwen3ForCausalLM:
    """A random model of the shipped shape: 853 056 parameters."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.05,
    )
    model: Qwen3ForCausalLM = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    model.train(mode=False)
    return model


async def episode(engine: TorchEngine, group: int, sample: int) -> int:
    """Play one episode; returns its sampled tokens."""
    shared, own = random.Random(group), random.Random(group * 1009 + sample)
    ids = [shared.randrange(VOCAB) for _ in range(PROMPT_TOKENS + shared.randrange(40))]
    name, num_sampled = f"{group}/{sample}", 0
    for _ in range(own.randint(*TURNS)):
        params = SamplingParams(
            temperature=1.0, max_new_tokens=own.randint(*NEW_TOKENS), seed=own.getrandbits(63)
        )
        drawn = await engine.sample(ids, params, session=name, prefix_key=str(group))
        ids += drawn.token_ids
        num_sampled += len(drawn.token_ids)
        ids += [own.randrange(VOCAB) for _ in range(OBSERVATION_TOKENS)]
    engine.release(name)
    return num_sampled


async def run_engine(
    model: Qwen3ForCausalLM, *, groups: int, samples: int, concurrent: int
) -> None:
    """Print the engine's figures for `groups` x `samples` episodes, `concurrent` at once."""
    options = TorchEngineOptions(num_sessions=concurrent)
    engine = TorchEngine(model.config, model.state_dict(), options=options)
    gate = asyncio.Semaphore(concurrent)

    async def guarded(group: int, sample: int) -> int:
        async with gate:
            return await episode(engine, group, sample)

    started, cpu = time.perf_counter(), time.process_time()
    counts = await asyncio.gather(
        *(guarded(group, sample) for group in range(groups) for sample in range(samples))
    )
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    stats = engine.stats()
    await engine.close()
    print(
        f"engine  {groups:4d} groups x {samples}, {concurrent} at once: {sum(counts)} tokens in"
        f" {wall:.2f} s = {sum(counts) / wall:.0f} tokens/s"
        f" (prefilled {stats.num_prefill_tokens}, reused {stats.num_cached_tokens},"
        f" busy {stats.busy_s:.2f} s, cpu {cpu:.2f} s)"
    )


def run_generate(model: Qwen3ForCausalLM, *, batch: int, new_tokens: int) -> None:
    """Print the figures of `transformers.generate` on one turn, prefill included."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, VOCAB, (batch, PROMPT_TOKENS), generator=generator)
    started = time.perf_counter()
    model.generate(  # type: ignore[misc]
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=True,
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        pad_token_id=0,
    )
    wall = time.perf_counter() - started
    print(
        f"generate batch {batch}: {batch * new_tokens} tokens in {wall:.2f} s ="
        f" {batch * new_tokens / wall:.0f} tokens/s"
    )


def main() -> None:
    """Run both on the same model in the same process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--concurrent", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = tiny_model()
    for _ in range(given.repeats):
        asyncio.run(
            run_engine(
                model,
                groups=given.groups,
                samples=given.samples,
                concurrent=given.concurrent,
            )
        )
    asyncio.run(
        run_engine(
            model, groups=given.groups * given.samples, samples=1, concurrent=given.concurrent
        )
    )
    run_generate(model, batch=given.concurrent, new_tokens=35)


if __name__ == "__main__":
    main()
