"""Rollouts on an engine whose KV cache is too small for all of them: admitted at once, and by room.

    python benchmarks/gpu/cache_admission.py [--out benchmarks/results/cache_admission.json]

Real vLLM on a CPU with the shipped model and a cache of a few thousand tokens. Groups of rollouts
start at once and take turns; between two turns a tool takes its time. What is counted is vLLM's
own: tokens of prompts that were computed, and requests that were preempted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from hillclimb.hardware.model.shipped import assets_dir
from trainer.engines.admission import CacheClaim
from trainer.engines.vllm.engine import VllmEngine
from trainer.engines.vllm.options import VllmOptions
from trainer.types import SamplingParams

GROUPS, SAMPLES, TURNS = 8, 4, 8
PROMPT, OBSERVATION, MOST_NEW, TOOL_S = 256, 40, 64, 0.05
LENGTH, BLOCK = 1024, 32
CACHES = (4096, 8192, 16384)
"""Tokens; all rollouts together end with about 22,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallCache(VllmOptions):
    """An engine with a cache of so many tokens."""

    cache_tokens: int = 0

    def engine_arguments(self) -> dict[str, Any]:
        # One block of vLLM's is never used.
        blocks = {"num_gpu_blocks_override": self.cache_tokens // BLOCK + 1}
        # Explicitly, as keyword-only slotted dataclasses have no zero-argument `super`.
        return VllmOptions.engine_arguments(self) | blocks | {"disable_log_stats": False}


@dataclass(slots=True)
class Played:
    """What the episodes needed at least: every token computed once (count)."""

    num_new: int = 0


async def play(
    engine: VllmEngine, group: int, sample: int, played: Played, *, by_room: bool
) -> None:
    """Play one rollout to its end."""
    rng = random.Random(f"{group}/{sample}")
    prompt = [random.Random(group).randrange(10, 2000) for _ in range(PROMPT)]
    ids, granted, session = list(prompt), 0, f"{group}/{sample}"
    for turn in range(TURNS):
        num_own = len(ids) - PROMPT + MOST_NEW
        if by_room and num_own > granted:
            claim = CacheClaim(
                session=session, group=str(group), num_shared=PROMPT, num_own=num_own
            )
            granted = await engine.admit(claim)
        params = SamplingParams(
            temperature=1.0, max_new_tokens=rng.randrange(16, MOST_NEW + 1), seed=turn
        )
        drawn = await engine.sample(ids, params, session=session, prefix_key=str(group))
        observation = [rng.randrange(10, 2000) for _ in range(OBSERVATION)]
        ids = [*ids, *drawn.token_ids, *observation]
        played.num_new += len(observation) + 1
        await asyncio.sleep(rng.uniform(0.5, 1.5) * TOOL_S)
    engine.release(session)


def preemptions() -> float:
    """Requests that vLLM of this process has preempted so far (count)."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.name == "vllm:num_preemptions_total"
    )


async def measured(cache_tokens: int, *, by_room: bool) -> dict[str, float]:
    """Play all rollouts on a new engine, and return the figures."""
    engine = VllmEngine(
        SmallCache(
            model_dir=assets_dir() / "tiny-qwen3-a",
            max_length=LENGTH,
            num_sessions=GROUPS * SAMPLES,
            cache_tokens=cache_tokens,
        )
    )
    played, before = Played(), preemptions()
    try:
        await asyncio.gather(
            *(
                play(engine, group, sample, played, by_room=by_room)
                for group in range(GROUPS)
                for sample in range(SAMPLES)
            )
        )
        stats = engine.stats()
        at_least = played.num_new + GROUPS * PROMPT
        return {
            "cache_tokens": cache_tokens,
            "computed_again": stats.num_prefill_tokens - at_least,
            "computed": stats.num_prefill_tokens,
            "preemptions": preemptions() - before,
            "waits": stats.num_cache_waits,
        }
    finally:
        await engine.close()


async def main() -> None:
    """Print and write the figures of all caches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--caches", type=int, nargs="+", default=CACHES)
    asked = parser.parse_args()
    rows = []
    for cache_tokens in asked.caches:
        for by_room in (False, True):
            row = {"admitted": "by room" if by_room else "at once"}
            rows.append(row | await measured(cache_tokens, by_room=by_room))
            print(rows[-1], flush=True)
    if asked.out is not None:
        about = {
            "groups": GROUPS,
            "rollouts_per_group": SAMPLES,
            "turns": TURNS,
            "prompt_tokens": PROMPT,
            "observation_tokens": OBSERVATION,
            "most_new_tokens": MOST_NEW,
            "tool_s": TOOL_S,
            "figure": "tokens of prompts that vLLM computed more than once, and its preemptions",
        }
        asked.out.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
