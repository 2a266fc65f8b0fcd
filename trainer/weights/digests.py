"""What identifies the tensors of an update, so that both sides can say whether they have the same.

The canary (`trainer.engines.canary`) allows for rounding, and the change of an update is smaller
than that: an engine that kept its old weights would pass it. A tensor's mark is taken over its
bits, where it leaves the learner and where an engine has it, and has to be the same.
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
"""In place of the mark of what an engine has and was not given."""
_NAMED = 5
"""How many tensors a message names."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The weights of a version."""

    version: int
    marks: Mapping[str, str]
    """By name, as Hugging Face or, of an adapter, peft has it."""


def marks(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """Return the mark of each tensor by its name."""
    return {name: mark(tensor) for name, tensor in tensors}


def mark(tensor: torch.Tensor) -> str:
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
        found = words.dot(places) if words.device.type == "cpu" else (words * places).sum()
        total = total * 0x5851F42D4C957F2D + found
    precision = str(tensor.dtype).removeprefix("torch.")
    return f"{precision}{list(tensor.shape)} {int(total) % (1 << 64):016x}"


def demand_same(sent: Manifest, held: Iterable[Manifest]) -> None:
    """Compare what the learner sent with what every engine has.

    Raises:
        WeightSyncMismatch: they differ; names the tensors.
    """
    for number, each in enumerate(held):
        faults = _differences(sent.marks, each.marks)
        if each.version != sent.version:
            faults.insert(0, f"version {each.version} instead of {sent.version}")
        if faults:
            more = f" and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise WeightSyncMismatch(
                f"engine {number} does not have the weights that the learner sent:"
                f" {', '.join(faults[:_NAMED])}{more}"
            )


def _differences(sent: Mapping[str, str], held: Mapping[str, str]) -> list[str]:
    missing = [name for name in sent if held.get(name, NOTHING) == NOTHING]
    other = [name for name in sent if name not in missing and held[name] != sent[name]]
    unknown = [f"{name} was not sent" for name in held if name not in sent]
    return [
        *(f"{name} did not arrive" for name in missing),
        *(f"{name} is another" for name in other),
        *unknown,
    ]


def _words(part: torch.Tensor) -> torch.Tensor:
    """Return the bits as words, zeros after the last; a copy only where a word would be cut."""
    first_byte = part.storage_offset() * part.element_size()
    if first_byte % 8 == 0 and part.data_ptr() % 8 == 0 and part.nbytes % 8 == 0:
        return part.view(torch.int64)
    num_words = -(-part.nbytes // 8)
    words = torch.zeros(num_words, dtype=torch.int64, device=part.device)
    words.view(part.dtype)[: len(part)] = part
    return words


@lru_cache(maxsize=2)
def _places(device: torch.device) -> torch.Tensor:
    """Return an odd number for each place, which have nothing to do with each other."""
    numbers = torch.arange(1, _WORDS + 1, device=device) * 0x1E3779B97F4A7C15
    for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB)):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return (numbers ^ (numbers >> 31)) | 1
