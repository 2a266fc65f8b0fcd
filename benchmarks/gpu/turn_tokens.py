"""What it costs to send all token ids of a rollout with each turn, from worker to vLLM's process.

    python benchmarks/gpu/turn_tokens.py [--out benchmarks/results/turn_tokens.json]

Milliseconds of one CPU for each hop: Ray's pickle in the rollout worker, unpickling in the engine's
actor, and msgpack from there into vLLM's process.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from ray import cloudpickle

from trainer.types import SamplingParams

LENGTHS, REPEATS = (1_000, 8_000, 30_000, 60_000), 50
VOCABULARY = 151_936


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median CPU time of a call."""
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        found.append(1000.0 * (time.process_time() - began))
    return round(statistics.median(found), 3)


def hops(num_tokens: int) -> dict[str, float]:
    """Return the costs of a prompt of so many tokens."""
    rng = random.Random(num_tokens)
    ids = tuple(rng.randrange(VOCABULARY) for _ in range(num_tokens))
    call = (ids, SamplingParams(temperature=1.0, max_new_tokens=8192), "session", "group")
    sent = cloudpickle.dumps(call, 5)
    packed = msgspec.msgpack.encode(list(ids))
    unpack = msgspec.msgpack.Decoder(list[int]).decode
    return {
        "tokens": num_tokens,
        "bytes": len(sent),
        "worker_ms": milliseconds(lambda: cloudpickle.dumps(call, 5)),
        "actor_ms": milliseconds(lambda: (pickle.loads(sent), msgspec.msgpack.encode(list(ids)))),
        "vllm_ms": milliseconds(lambda: unpack(packed)),
    }


def main() -> None:
    """Print and write the figures of all lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    rows = [hops(length) for length in LENGTHS]
    for row in rows:
        print(row)
    if out is not None:
        about = {"figure": "median CPU time of each hop of a turn's request (ms)"}
        out.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
