"""Digests of the tensors of a weight sync: both sides compute them, and they must be equal.

The canary (`trainer.engines.canary`) allows for rounding, and one update changes the weights by
less than that: an engine that kept its old weights would pass it. A digest is taken over a tensor's
bits, where it leaves the learner and where an engine has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from trainer.errors import WeightSyncMismatch

_WORDS = 1 << 20
"""Words of eight bytes that are added up at once."""
NOTHING = "nothing was loaded"
"""In place of the digest of a tensor that the engine has and the sync left out."""
_NAMED = 5
"""Number of tensors that a message names."""


@dataclass(frozen=True, slots=True)
class WeightDigests:
    """Digests of the weights of one version."""

    version: int
    digests: Mapping[str, str]
    """By name, as Hugging Face or, of an adapter, peft has it."""


def tensor_digests(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """Return the digest of each tensor by its name."""
    return {name: tensor_digest(tensor) for name, tensor in tensors}


def tensor_digest(tensor: torch.Tensor) -> str:
    """Return precision, shape and checksum: the same on every device, another for any other bits.

    The checksum is the sum of all words of eight bytes, each times an odd number that belongs to
    its place, modulo 2^64. A change within one word always shows.
    """
    flat = tensor.detach().reshape(-1)
    num_values = _WORDS * 8 // flat.element_size()
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for start in range(0, len(flat), num_values):
        words = _words(flat[start : start + num_values])
        places = _places(flat.device)[: len(words)]
        # On a CPU in one pass; CUDA has no such product of integers.
        part = words.dot(places) if words.device.type == "cpu" else (words * places).sum()
        total = total * 0x5851F42D4C957F2D + part
    precision = str(tensor.dtype).removeprefix("torch.")
    return f"{precision}{list(tensor.shape)} {int(total) % (1 << 64):016x}"


def assert_same_weights(sent: WeightDigests, loaded: Iterable[WeightDigests]) -> None:
    """Compare the learner's digests with those of every engine.

    Raises:
        WeightSyncMismatch: they differ; names the tensors.
    """
    for number, each in enumerate(loaded):
        faults = _differences(sent.digests, each.digests)
        if each.version != sent.version:
            faults.insert(0, f"version {each.version} instead of {sent.version}")
        if faults:
            more = f" and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise WeightSyncMismatch(
                f"engine {number} does not have the weights that the learner sent:"
                f" {', '.join(faults[:_NAMED])}{more}"
            )


def _differences(sent: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    missing = [name for name in sent if own.get(name, NOTHING) == NOTHING]
    other = [name for name in sent if name not in missing and own[name] != sent[name]]
    unknown = [f"{name} was not sent" for name in own if name not in sent]
    return [
        *(f"{name} did not arrive" for name in missing),
        *(f"{name} differs" for name in other),
        *unknown,
    ]


def _words(part: torch.Tensor) -> torch.Tensor:
    """Return the bits as 8-byte words, padded with zeros; copies only unaligned or odd sizes."""
    first_byte = part.storage_offset() * part.element_size()
    if first_byte % 8 == 0 and part.data_ptr() % 8 == 0 and part.nbytes % 8 == 0:
        return part.view(torch.int64)
    num_words = -(-part.nbytes // 8)
    words = torch.zeros(num_words, dtype=torch.int64, device=part.device)
    words.view(part.dtype)[: len(part)] = part
    return words


@lru_cache(maxsize=2)
def _places(device: torch.device) -> torch.Tensor:
    """Return an odd pseudo-random factor for each place (SplitMix64)."""
    numbers = torch.arange(1, _WORDS + 1, device=device) * 0x1E3779B97F4A7C15
    for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return (numbers ^ (numbers >> 31)) | 1
