"""What is known of accelerators: memory, speed, and how SkyPilot and their drivers spell them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, by its maker's data sheet."""

    memory_gib: float
    """What a program finds, rounded down (GiB): the data sheet's less what the driver keeps."""
    bfloat16_flops: float
    """Dense, per second; without structured sparsity."""
    bytes_per_second: float
    """Of its memory."""


BFLOAT16_FLOPS = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "GH200": 989e12,
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
}
"""Dense bfloat16 FLOP/s by chip, from the makers' data sheets.

NVIDIA's Blackwell data sheet says 5 PFLOPS of a GPU in GB200 NVL72 and 4.5 of one in HGX B200, with
sparsity: dense is half of that.
"""

GPUS: dict[str, Gpu] = {
    "H100": Gpu(memory_gib=79, bfloat16_flops=BFLOAT16_FLOPS["H100"], bytes_per_second=3.35e12),
    "H200": Gpu(memory_gib=139, bfloat16_flops=BFLOAT16_FLOPS["H200"], bytes_per_second=4.8e12),
    "B200": Gpu(memory_gib=178, bfloat16_flops=BFLOAT16_FLOPS["B200"], bytes_per_second=8.0e12),
    "A100-80GB": Gpu(
        memory_gib=79, bfloat16_flops=BFLOAT16_FLOPS["A100"], bytes_per_second=1.935e12
    ),
    "A100": Gpu(memory_gib=39, bfloat16_flops=BFLOAT16_FLOPS["A100"], bytes_per_second=1.555e12),
    "L40S": Gpu(memory_gib=44, bfloat16_flops=BFLOAT16_FLOPS["L40S"], bytes_per_second=0.864e12),
    "L4": Gpu(memory_gib=22, bfloat16_flops=BFLOAT16_FLOPS["L4"], bytes_per_second=0.3e12),
}
"""By the name that SkyPilot's catalogs use. Source: NVIDIA's data sheets. Only the H200's memory
was seen (about 139 GiB of the 141 GB of its data sheet); the others are reduced alike."""

_FORMS = ("-SXM", "-NVL", "-PCIE", "-MEGA")
"""Endings by which some clouds tell apart forms of one chip: `H200-SXM`."""


def meant(name: str) -> str | None:
    """Return the name that a misspelt one is close to; None where it is close to none."""
    return next(iter(get_close_matches(name.upper(), GPUS, n=1, cutoff=0.7)), None)


def gpu_named(name: str) -> Gpu | None:
    """Return what is known of an accelerator by SkyPilot's name for it, in either case."""
    plain = name.upper()
    for form in _FORMS:
        plain = plain.removesuffix(form)
    return GPUS.get(plain)


def flops_of_device(name: str) -> float | None:
    """Return the dense bfloat16 FLOP/s of a device by its driver's name: `NVIDIA A100-SXM4-80GB`.

    Whole words of it count: an L40S is no L4.
    """
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return next((flops for chip, flops in BFLOAT16_FLOPS.items() if chip in words), None)
