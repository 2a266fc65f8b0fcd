"""Compiles one Triton kernel and runs it on the first GPU: `python -m trainer.node.checks.kernel`.

vLLM compiles its own at its first requests. That needs more than a C compiler: Python's headers,
a driver that takes the code, and a folder to cache it in.
"""

from __future__ import annotations

import sys

import torch

from trainer.node.checks.allreduce import NO_CUDA

SIZE = 1024


def main() -> int:
    """Add two vectors by a kernel; exit with 0 where the sum is right."""
    if not torch.cuda.is_available():
        return NO_CUDA
    # Only builds of torch for GPUs bring it.
    import triton  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    import triton.language as tl  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def add(left, right, total, size: tl.constexpr) -> None:  # type: ignore[no-untyped-def, unused-ignore]  # noqa: ANN001
        places = tl.arange(0, size)
        tl.store(total + places, tl.load(left + places) + tl.load(right + places))

    left = torch.arange(SIZE, device="cuda", dtype=torch.float32)
    total = torch.empty_like(left)
    add[(1,)](left, left, total, SIZE)
    if not torch.equal(total, 2 * left):
        print("a Triton kernel computes a wrong sum", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
