"""What the estimator knows of accelerators: memory, speed, and how SkyPilot spells them."""

from __future__ import annotations

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


GPUS: dict[str, Gpu] = {
    "H100": Gpu(memory_gib=79, bfloat16_flops=989e12, bytes_per_second=3.35e12),
    "H200": Gpu(memory_gib=139, bfloat16_flops=989e12, bytes_per_second=4.8e12),
    "B200": Gpu(memory_gib=178, bfloat16_flops=2.25e15, bytes_per_second=8.0e12),
    "A100-80GB": Gpu(memory_gib=79, bfloat16_flops=312e12, bytes_per_second=1.935e12),
    "A100": Gpu(memory_gib=39, bfloat16_flops=312e12, bytes_per_second=1.555e12),
    "L40S": Gpu(memory_gib=44, bfloat16_flops=362e12, bytes_per_second=0.864e12),
    "L4": Gpu(memory_gib=22, bfloat16_flops=121e12, bytes_per_second=0.3e12),
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
