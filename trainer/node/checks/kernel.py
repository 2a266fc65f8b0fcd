"""Compiles one Triton kernel and runs it on the first GPU: `python -m trainer.node.checks.kernel`.

vLLM compiles its own at its first requests. That needs more than a C compiler: Triton, Python's
headers, a driver that takes the code, and a folder to cache it in. torch writes the kernel, since
Triton itself is only there beside its builds for GPUs.
"""

from __future__ import annotations

import sys

from hillclimb.process.lazy_imports import gc_paused_import
from trainer.node.checks.allreduce import NO_CUDA

with gc_paused_import():
    import torch

SIZE = 1024


def main() -> int:
    """Double a vector by a compiled kernel; exit with 0 where the result is right."""
    if not torch.cuda.is_available():
        return NO_CUDA
    numbers = torch.arange(SIZE, device="cuda", dtype=torch.float32)
    doubled = torch.compile(_doubled)(numbers)
    if doubled.tolist() != [2.0 * number for number in range(SIZE)]:
        sys.stderr.write("a Triton kernel computes a wrong result\n")
        return 1
    return 0


def _doubled(numbers: torch.Tensor) -> torch.Tensor:
    return numbers * 2.0


if __name__ == "__main__":
    sys.exit(main())
