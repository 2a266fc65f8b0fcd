"""Moments in fewer bits than float32: how numbers are stored and read back.

`bfloat16` is rounded up or down at random, in proportion to the distance: a second moment that
changes by a thousandth per step would never change if it were rounded to the nearest (8 bits).
`int8` has one code of 256 per number, and the largest magnitude of each block of 256 numbers of a
row in float32. Its codes are dense near zero, where a linear scale would store zeros and the update
divide by them. Source: Dettmers et al. 2022 (8-bit optimizers, arXiv:2110.02861), their dynamic
tree without sign for the second moment.
Legend: R rows, C columns, B blocks of a row.
"""

from __future__ import annotations

from functools import cache

import torch

BLOCK = 256
"""Numbers that share a scale; blocks are within rows, so any number of ranks can share the rows."""
_EXPONENTS = 7
_FRACTION_BITS = 0xFFFF
_SMALLEST = 1e-12
"""Scale of a block of zeros."""


def round_randomly(values: torch.Tensor, *, seed: int) -> torch.Tensor:
    """Round float32 to bfloat16; the expectation is the value. The seed decides every draw."""
    generator = torch.Generator(values.device).manual_seed(seed)
    noise = torch.randint(
        0, _FRACTION_BITS + 1, values.shape,
        generator=generator, device=values.device, dtype=torch.int32,
    )  # fmt: skip
    bits = values.view(torch.int32) + noise
    return bits.bitwise_and_(~_FRACTION_BITS).view(torch.float32).bfloat16()


def num_blocks(num_columns: int) -> int:
    """Return the blocks of a row; the last one may be short."""
    return -(-num_columns // BLOCK)


def encode(values_RC: torch.Tensor, *, signed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes, uint8 [R, C], and scales, float32 [R, B], of float32 values."""
    columns = values_RC.shape[-1]
    missing = num_blocks(columns) * BLOCK - columns
    padded = torch.nn.functional.pad(values_RC, (0, missing)) if missing else values_RC
    blocks_RBn = padded.unflatten(-1, (-1, BLOCK))  # type: ignore[no-untyped-call]
    scales_RB = blocks_RBn.abs().amax(-1).clamp_min(_SMALLEST)
    levels = _levels(values_RC.device, signed=signed)
    between = (levels[1:] + levels[:-1]) / 2
    codes = torch.bucketize(blocks_RBn / scales_RB.unsqueeze(-1), between, out_int32=True)
    return codes.to(torch.uint8).flatten(-2)[..., :columns], scales_RB


def decode(codes_RC: torch.Tensor, scales_RB: torch.Tensor, *, signed: bool) -> torch.Tensor:
    """Return the float32 values [R, C] of `encode`, each at most half a level away."""
    levels = _levels(codes_RC.device, signed=signed)
    scales_RC = scales_RB.repeat_interleave(BLOCK, dim=-1)[..., : codes_RC.shape[-1]]
    return levels[codes_RC.int()].mul_(scales_RC)


@cache
def _levels(device: torch.device, *, signed: bool) -> torch.Tensor:
    """Return the 256 values in [-1, 1], ascending: more digits the larger the magnitude.

    Seven powers of ten, each divided into twice as many equal parts as the one below; 0 and 1.
    """
    levels = [torch.tensor([0.0, 1.0], dtype=torch.float64)]
    for exponent in range(_EXPONENTS):
        parts = 2 ** (exponent + (not signed))
        borders = torch.linspace(0.1, 1.0, parts + 1, dtype=torch.float64)
        middles = (borders[1:] + borders[:-1]) / 2 * 10.0 ** (exponent - _EXPONENTS + 1)
        levels += [middles, -middles] if signed else [middles]
    return torch.cat(levels).sort().values.float().to(device)
