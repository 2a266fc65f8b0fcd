"""Block B: what a length that was never there before costs, and which kernel is the fastest."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time

import torch

from benchmarks.gpu.attending import Groups, Stream, Way, pass_over, stream, ways
from benchmarks.gpu.setting import Cases, Check, Figures, Setting
from trainer.learners.packing.packing import PrefixGroup

AVOIDS_RECOMPILING = {"TORCH_CUDNN_SDPA_AVOID_RECOMPILE": "1"}
"""Read once per process: the way by cuDNN is timed again in one of its own."""


def new_lengths(setting: Setting) -> Cases:
    """Forward and backward of sixteen lengths, each for the first time and then again."""
    for way in ways(setting.device):
        yield way.name, _timed(setting, way)
        if "cudnn" in way.name:
            command = [sys.executable, "-m", "benchmarks.gpu.shapes", setting.device, way.name]
            environ = os.environ | AVOIDS_RECOMPILING
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            words = (done.stdout.splitlines() or [done.stderr[-500:]])[-1]
            yield "per_branch_cudnn_avoiding_plans", {"figures": words}


def _timed(setting: Setting, way: Way) -> Figures:
    rng = random.Random(0)
    shortest, longest = setting.size(4096, 16), setting.size(16_384, 64)
    lengths = [rng.randrange(shortest, longest) for _ in range(setting.size(16, 4))]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first, again = [], []
    for length in lengths:
        # Two branches: a prompt with one is a plain causal sequence.
        part = length // 4
        groups = (PrefixGroup(prompt_length=length - 3 * part, branch_lengths=(part, 2 * part)),)
        parts = stream(setting, length, torch.bfloat16)
        first.append(_seconds(setting, groups, parts, way))
        again.append(_seconds(setting, groups, parts, way))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "first_s": sorted(first)[len(first) // 2],
        "again_s": sorted(again)[len(again) // 2],
        "all_first_s": sum(first),
        "host_mib_more": round(grown / 1024, 1),
    }


def _seconds(setting: Setting, groups: Groups, parts: Stream, way: Way) -> float:
    started = time.perf_counter()
    pass_over(setting, groups, parts, way)
    return time.perf_counter() - started


def kernels(setting: Setting) -> Cases:
    """Each way at 8k, 32k and 65k tokens: seconds of a pass over one family of four branches."""
    for length in (8192, 32_768, 65_536):
        tokens = setting.size(length, length // 512)
        part = tokens // 8
        groups = (PrefixGroup(prompt_length=tokens - 4 * part, branch_lengths=(part,) * 4),)
        for way in ways(setting.device):
            parts = stream(setting, tokens, torch.bfloat16)
            _seconds(setting, groups, parts, way)
            yield f"{way.name}_{tokens}", {"seconds": _seconds(setting, groups, parts, way)}


CHECKS: dict[str, Check] = {"new_lengths": new_lengths, "kernels": kernels}

if __name__ == "__main__":
    where = Setting(device=sys.argv[1], rehearses=False)
    (chosen,) = [each for each in ways(where.device) if each.name == sys.argv[2]]
    print(_timed(where, chosen))
