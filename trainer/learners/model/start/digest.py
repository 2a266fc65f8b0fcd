"""Digest of the weights that training starts from: frozen weights are in no checkpoint."""

from __future__ import annotations

import hashlib

import torch

from trainer.inputs.model.weights import WeightFiles
from trainer.learners.model.sharding import Ranks


def start_digest(
    model: torch.nn.Module, ranks: Ranks, files: WeightFiles | None = None
) -> torch.Tensor:
    """Return the sha256, [32] uint8, of names, shapes and bits of the parameters of `model`.

    The digest is the same for any number of ranks, each of which reads its share of the tensors:
    one after the other from `files`, if these have the weights of a model without storage.
    """
    named = sorted(model.named_parameters(), key=lambda each: each[0])
    own = [
        _digest(name, parameter.detach() if files is None else _read(files, name, parameter))
        for name, parameter in named[ranks.rank :: ranks.size]
    ]
    digests = sorted(digest for share in ranks.gather(own) for digest in share)
    digest = hashlib.sha256(b"".join(digests)).digest()
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)


def _read(files: WeightFiles, name: str, parameter: torch.nn.Parameter) -> torch.Tensor:
    return files.rows(name, 0, len(parameter)).to(parameter.dtype)


def _digest(name: str, tensor: torch.Tensor) -> bytes:
    digest = hashlib.sha256(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.digest()
