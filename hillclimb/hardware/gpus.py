"""Data sheets of accelerators: memory, speed, and their names in SkyPilot and their drivers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """Memory of one accelerator, from its data sheet."""

    memory_gib: float
    """Memory that a program finds, rounded down (GiB): the data sheet's, less the driver's."""
    bytes_per_s: float
    """Bandwidth of that memory, of the form with the most (SXM): a program reaches less."""


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

GPUS: dict[str, GpuModel] = {
    "H100": GpuModel(memory_gib=79, bytes_per_s=3.35e12),
    "H200": GpuModel(memory_gib=139, bytes_per_s=4.8e12),
    "B200": GpuModel(memory_gib=178, bytes_per_s=8e12),
    "A100-80GB": GpuModel(memory_gib=79, bytes_per_s=2.039e12),
    "A100": GpuModel(memory_gib=39, bytes_per_s=1.555e12),
    "L40S": GpuModel(memory_gib=44, bytes_per_s=864e9),
    "L4": GpuModel(memory_gib=22, bytes_per_s=300e9),
}
"""By the name that SkyPilot's catalogs use. Source: NVIDIA's data sheets. Only the H200's memory
was measured (about 139 GiB of its data sheet's 141 GB); the others are reduced alike."""

_FORMS = ("-SXM", "-NVL", "-PCIE", "-MEGA")
"""Suffixes that some clouds use for the forms of one chip: `H200-SXM`."""


def closest_gpu(name: str) -> str | None:
    """Return the known name closest to a misspelt one; None where none is close."""
    return next(iter(get_close_matches(name.upper(), GPUS, n=1, cutoff=0.7)), None)


def gpu_named(name: str) -> GpuModel | None:
    """Return the accelerator of SkyPilot's name for it, in either case; None if unknown."""
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
