"""Attention over packed prefix groups on one GPU: is it right, and what does a new length cost?

    python benchmarks/gpu/attention.py [--out attention.json]
    python benchmarks/gpu/attention.py --device cpu --tiny     # a rehearsal without a GPU

For the first minutes on a GPU: it needs torch and transformers, and none of the trainer's other
packages. Each check prints one line of JSON when it ends. The exit status is 1 if what should be
equal is not.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainer.learners.model.attention import prefix_group_attention
from trainer.learners.model.varlen import VarlenLayout, has_varlen
from trainer.learners.packing.packing import PrefixGroup

Figures = dict[str, Any]
Stream = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SCALE = 128**-0.5
LARGEST_GAP = 0.02
"""Of outputs and gradients in bfloat16 from those in float32, over the largest of the latter."""


def stream(num_tokens: int, device: str, dtype: torch.dtype, *, tiny: bool) -> Stream:
    """Queries, keys and values as Qwen3-8B has them, leaves with a gradient."""
    heads, kv_heads, size = (4, 2, 16) if tiny else (32, 8, 128)
    torch.manual_seed(num_tokens)
    query, key, value = (
        torch.randn(1, each, num_tokens, size, device=device).to(dtype).requires_grad_()
        for each in (heads, kv_heads, kv_heads)
    )
    return query, key, value


def attend(
    groups: tuple[PrefixGroup, ...], parts: Stream, layout: VarlenLayout | None
) -> torch.Tensor:
    """Compute the output by one call with a layout, else by a call per prompt and branch."""
    output, _ = prefix_group_attention(
        torch.nn.Identity(), *parts, None,
        scaling=SCALE, prefix_groups=groups, varlen_layout=layout,
    )  # fmt: skip
    return output


def layout_of(groups: tuple[PrefixGroup, ...], device: str) -> VarlenLayout | None:
    """Return the layout where the device has the kernel."""
    where = torch.device(device)
    return VarlenLayout.of(groups, where) if has_varlen(where, torch.bfloat16) else None


def agrees(device: str, *, tiny: bool) -> Figures:
    """Outputs and gradients of families of 1, 2 and 4 branches, one empty, against float32."""
    unit = 8 if tiny else 256
    groups = (
        PrefixGroup(prompt_length=5 * unit + 3, branch_lengths=(unit, 3 * unit + 1, 0, 7)),
        PrefixGroup(prompt_length=2 * unit, branch_lengths=(unit + 5,)),
        PrefixGroup(prompt_length=unit + 1, branch_lengths=(2 * unit, unit)),
    )
    num_tokens = sum(group.num_tokens for group in groups)
    exact = stream(num_tokens, device, torch.float32, tiny=tiny)
    direction = torch.randn_like(attend(groups, exact, None))
    torch.autograd.backward((attend(groups, exact, None) * direction).sum())
    ways = {"per_branch": None, "one_call": layout_of(groups, device)}
    figures: Figures = {}
    for name, layout in ways.items():
        if name == "one_call" and layout is None:
            continue
        rounded = stream(num_tokens, device, torch.bfloat16, tiny=tiny)
        output = attend(groups, rounded, layout)
        torch.autograd.backward((output.float() * direction).sum())
        gaps = {"output": gap(output, attend(groups, exact, None))}
        for part, mine, true in zip("qkv", rounded, exact, strict=True):
            gaps[f"gradient_{part}"] = gap(mine.grad, true.grad)
        figures[name] = {**gaps, "equal": max(gaps.values()) < LARGEST_GAP}
    return figures


def gap(found: torch.Tensor | None, true: torch.Tensor | None) -> float:
    """Return the largest difference over the largest true value."""
    assert found is not None
    assert true is not None
    difference = found.detach().float() - true.detach()
    return float(difference.abs().max() / true.detach().abs().max())


def new_lengths(device: str, *, tiny: bool) -> Figures:
    """Seconds of forward and backward of ever new lengths, the median over the same one again."""
    shortest, longest, count = (16, 64, 4) if tiny else (4096, 16_384, 40)
    rng = random.Random(0)
    lengths = [rng.randrange(shortest, longest) for _ in range(count)]
    figures: Figures = {}
    for name, cudnn in (("one_call", False), ("per_branch", False), ("per_branch_cudnn", True)):
        torch.backends.cuda.enable_cudnn_sdp(enabled=cudnn)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first, again = [], []
        for length in lengths:
            groups = (PrefixGroup(prompt_length=length, branch_lengths=()),)
            layout = layout_of(groups, device) if name == "one_call" else None
            parts = stream(length, device, torch.bfloat16, tiny=tiny)
            first.append(seconds(groups, parts, layout))
            again.append(seconds(groups, parts, layout))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        figures[name] = {
            "first_s": sorted(first)[count // 2],
            "again_s": sorted(again)[count // 2],
            "host_mib_more": grown / 1024,
        }
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    return figures


def seconds(groups: tuple[PrefixGroup, ...], parts: Stream, layout: VarlenLayout | None) -> float:
    """Time one forward and backward pass."""
    synchronize(parts[0].device)
    started = time.perf_counter()
    torch.autograd.backward(attend(groups, parts, layout).float().sum())
    synchronize(parts[0].device)
    return time.perf_counter() - started


def synchronize(device: torch.device) -> None:
    """Wait for the device's kernels."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


CHECKS: dict[str, Callable[..., Figures]] = {"agrees": agrees, "new_lengths": new_lengths}


def main() -> int:
    """Run the checks; return 1 if one found a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results: Figures = {"torch": torch.__version__, "device": args.device, "tiny": args.tiny}
    if args.device != "cpu":
        results["gpu"] = torch.cuda.get_device_name(args.device)
        results["cudnn"] = torch.backends.cudnn.version()
    for name, check in CHECKS.items():
        results[name] = check(args.device, tiny=args.tiny)
        print(json.dumps({name: results[name]}), flush=True)
        if args.out is not None:
            args.out.write_text(json.dumps(results, indent=2) + "\n")
    return int(not all(way["equal"] for way in results["agrees"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
