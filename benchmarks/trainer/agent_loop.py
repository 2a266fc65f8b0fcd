"""Sampled tokens per second of whole agent episodes on vLLM, against vLLM alone.

    python benchmarks/trainer/agent_loop.py [--rounds 5]

The loop: one training step's rollouts of the demo (20 tasks x 8), tools, parsing, chat and
verifiers included. Alone: `vllm.LLM.generate` on the requests that the loop made, the same prompts
with the same numbers of new tokens and the same engine settings, twice: turn by turn, each turn's
requests as one call, which is the loop's batch without its tools; and all requests of all turns in
one call, in which nothing waits for the turn before, so that the batch never shrinks. Both engines
live through the whole benchmark and take turns, so that a noisy machine is noisy for both. Writes
`benchmarks/results/agent_loop.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml

from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.spec.run import RunSpec
from trainer.engines.base import Engine, EngineStats
from trainer.engines.vllm.options import ENVIRONMENT
from trainer.inputs.model.directory import load_config
from trainer.inputs.model.sources import resolve_source
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.training_request import training_request
from trainer.types import Sample, SamplingParams
from trainer.workers.factory import WorkerFactory

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "agent_loop.json"


@dataclass(frozen=True, slots=True)
class Request:
    """What the loop asked for: so many tokens after this prompt, in this turn of its rollout."""

    prompt_ids: tuple[int, ...]
    num_tokens: int
    turn: int


@dataclass
class Recording:
    """An engine that keeps what it was asked and how many tokens it drew."""

    engine: Engine
    requests: list[Request] = field(default_factory=list)
    _turns: Counter[str] = field(default_factory=Counter)

    @property
    def weight_version(self) -> int:
        return self.engine.weight_version

    def stats(self) -> EngineStats:
        return self.engine.stats()

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, *, session: str, prefix_key: str
    ) -> Sample:
        sample = await self.engine.sample(
            prompt_ids, params, session=session, prefix_key=prefix_key
        )
        request = Request(tuple(prompt_ids), len(sample.token_ids), self._turns[session])
        self.requests.append(request)
        self._turns[session] += 1
        return sample

    def release(self, session: str) -> None:
        self.engine.release(session)

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        return await self.engine.logprobs(token_ids)

    async def close(self) -> None:
        await self.engine.close()


class Alone:
    """vLLM by itself, with the options of our engine."""

    def __init__(self, arguments: dict[str, object]) -> None:
        import vllm  # noqa: PLC0415 - after the variables

        self._sampling = vllm.SamplingParams
        self._llm = vllm.LLM(**arguments)  # type: ignore[arg-type]
        self._round = 0

    def tokens_per_second(self, requests: Sequence[Request], *, by_turn: bool) -> float:
        """Generate all requests in one call, or those of each turn in a call of their own."""
        self._round += 1
        turns = sorted({request.turn for request in requests}) if by_turn else [None]
        num_tokens, seconds = 0, 0.0
        for turn in turns:
            batch = [request for request in requests if turn in (None, request.turn)]
            drawn, taken = self._generate(batch)
            num_tokens, seconds = num_tokens + drawn, seconds + taken
        return num_tokens / seconds

    def _generate(self, requests: Sequence[Request]) -> tuple[int, float]:
        prompts: list[Any] = [
            {"prompt_token_ids": list(each.prompt_ids), "cache_salt": str(self._round)}
            for each in requests
        ]
        sampling = [
            self._sampling(
                temperature=1.0, max_tokens=each.num_tokens, min_tokens=each.num_tokens,
                ignore_eos=True, logprobs=0, detokenize=False, seed=index,
            )
            for index, each in enumerate(requests)
        ]  # fmt: skip
        began = time.perf_counter()
        outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - began
        return sum(len(output.outputs[0].token_ids) for output in outputs), seconds


async def measure(rounds: int) -> dict[str, object]:
    """Take turns for `rounds` rounds, the first of which warms up both."""
    spec = RunSpec.model_validate(yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text()))
    spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"type": "vllm"})})
    here = Path("/nonexistent")
    model_dir = resolve_source(spec.model.source, here)
    factory = WorkerFactory(
        spec=spec, model_dir=model_dir, vocab_size=load_config(model_dir).vocab_size,
        attempt_dir=here, attempt=1,
    )  # fmt: skip
    from trainer.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - after the variables

    engine = factory.make_engine().engine
    assert isinstance(engine, VllmEngine)
    alone = Alone({**engine.arguments, "weight_transfer_config": None})
    tasks = minifleet_tasks(spec.data.env_keys, "train", 200, seed=0)
    found: list[dict[str, float]] = []
    for number in range(rounds + 1):
        recording = Recording(engine)
        collector = Collector(
            factory.make_rollout_worker(recording),
            max_concurrent_rollouts=spec.environment.max_concurrent_rollouts,
        )
        # Other tasks each time: nothing is in a cache yet.
        step_tasks = [task for index, task in enumerate(tasks) if index % 50 == number]
        began = time.perf_counter()
        await collector.collect(step_tasks, training_request(spec, number + 1))
        seconds = time.perf_counter() - began
        drawn = sum(request.num_tokens for request in recording.requests)
        each = {
            "tokens": drawn,
            "loop": drawn / seconds,
            "same_batches": alone.tokens_per_second(recording.requests, by_turn=True),
            "one_batch": alone.tokens_per_second(recording.requests, by_turn=False),
        }
        if number:
            found.append(each)
            print(f"round {number}:", {name: round(value) for name, value in each.items()})
    await engine.close()
    return {
        "rounds": found,
        "ratio": median(each["loop"] / each["same_batches"] for each in found),
        "ratio_to_one_batch": median(each["loop"] / each["one_batch"] for each in found),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    wanted = ENVIRONMENT | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    if not wanted.items() <= os.environ.items():
        # torch read them when it was imported: once more, with them.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)
    result = asyncio.run(measure(options.rounds))
    print("median ratio:", result["ratio"], "to one batch:", result["ratio_to_one_batch"])
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
