"""Gathers whole weights from their shards: for the engines, and as files for other tools."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from trainer.inputs.model.directory import copy_tokenizer, save_config
from trainer.inputs.model.families.experts import published_tensors
from trainer.inputs.model.families.family import CausalLM, CausalLMConfig
from trainer.inputs.model.families.registry import family_of
from trainer.learners.model.sharding import Ranks
from trainer.weights.chunks import TensorShape

HEAD = "lm_head.weight"
"""transformers omits the head where it is tied, but engines store it separately: without it they
would serve a mixture of the old and the new model."""
EMBEDDING = "model.embed_tokens.weight"
Weights: TypeAlias = dict[str, torch.Tensor]
Precision: TypeAlias = Callable[[str], torch.dtype]
"""Precision of a parameter, by its name, outside of the learner."""


def precision_of(config: CausalLMConfig, dtype: torch.dtype) -> Precision:
    """Return `dtype` for all parameters but those that the family keeps in float32."""
    exact = family_of(config).in_float32
    return lambda name: torch.float32 if name.endswith(exact) else dtype


def gathered(
    parameters: Mapping[str, torch.nn.Parameter], ranks: Ranks, precision: Precision | None = None
) -> Weights:
    """Gather every parameter on the CPU of rank 0; the other ranks get an empty mapping.

    The tensors are copies, in `precision` or, if it is None, in their own. They are rounded where
    they are: a GPU does it faster, and half of the bytes travel to the host.
    """
    weights: Weights = {}
    for name, parameter in parameters.items():
        tensor = parameter.detach()
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if ranks.rank == 0:
            rounded = full if precision is None else full.to(precision(name))
            weights[name] = rounded.to("cpu", copy=rounded is full)
    return weights


def flat(
    parameters: Mapping[str, torch.nn.Parameter], names: Sequence[str], dtype: torch.dtype
) -> torch.Tensor:
    """Return the gathered tensors of `names` as one flat tensor, on every rank's device.

    A name without a parameter is that of the tied head.
    """
    tensors = []
    for name in names:
        tensor = parameters[name if name in parameters else EMBEDDING].detach()
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        tensors.append(full.to(dtype).reshape(-1))
    return torch.cat(tensors)


def shapes(
    parameters: Mapping[str, torch.nn.Parameter], precision: Precision
) -> Iterator[TensorShape]:
    """Yield the shapes of all tensors to send, the tied head behind the others of its precision.

    Those of one precision follow each other: a chunk has one.
    """
    of = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    of = of | {HEAD: of.get(HEAD, of[EMBEDDING])}
    for name in sorted(of, key=lambda each: precision(each) is not precision(EMBEDDING)):
        shape, dtype = of[name], precision(name)
        num_bytes = math.prod(shape) * dtype.itemsize
        yield TensorShape(name, str(dtype).removeprefix("torch."), shape, num_bytes)


def write_weights(weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write one safetensors file atomically."""
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(weights), part, metadata={"format": "pt"})
    part.replace(path)


def policy_writer(
    model: CausalLM, weights: Weights, tokenizer_dir: Path | None
) -> Callable[[Path], None]:
    """Return a function that writes a Hugging Face directory for plain transformers and vLLM.

    Experts are written one by one, as in published models: other tools know no other names.
    """
    tensors = {
        own: part
        for name, tensor in weights.items()
        if not (name == HEAD and model.config.tie_word_embeddings)
        for own, part in published_tensors(name, tensor)
    }

    def write(directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        write_weights(tensors, directory / "model.safetensors")
        save_config(model.config, directory, dtype=next(iter(tensors.values())).dtype)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(directory)
        if tokenizer_dir is not None:
            copy_tokenizer(tokenizer_dir, directory)

    return write
