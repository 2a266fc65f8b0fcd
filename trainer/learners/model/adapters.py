"""LoRA: the adapters of a policy, their files, and the merged weights.

The only file that imports peft; runs without adapters do not import this one.
Source: Hu et al. 2021 (arXiv:2106.09685).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file

from hillclimb.hardware.model.experts import why_not_adapted
from trainer.errors import SpecError
from trainer.inputs.model.families.family import CausalLM
from trainer.inputs.model.families.registry import experts_of

_ADAPTER = "default"
_FACTOR = re.compile(rf"^(.+)\.lora_([AB])\.{_ADAPTER}\.weight$")
_BASE = ".base_layer.weight"


class AdapterShape(Protocol):
    """Rank, scale and layers of an adapter: a run's `LoraSpec` is one."""

    @property
    def rank(self) -> int:
        """Rank of the two factors."""

    @property
    def alpha(self) -> int:
        """The product of the factors is scaled by alpha / rank."""

    @property
    def target_modules(self) -> tuple[str, ...]:
        """Last parts of the names of the adapted layers."""


def add_adapters(model: CausalLM, spec: AdapterShape, *, seed: int) -> None:
    """Put float32 adapters beside the targeted layers, in place, and freeze everything else.

    The first factor is drawn from `seed`, the second is 0: the policy is unchanged at first.

    Raises:
        SpecError: a targeted layer is one of experts, or the model has none of its name.
    """
    why_not = why_not_adapted(spec.target_modules) if experts_of(model.config) else None
    if why_not is not None:
        raise SpecError(why_not)
    have = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if lacking := [name for name in spec.target_modules if name not in have]:
        raise SpecError(
            f"learner.lora.target_modules names {', '.join(lacking)}, which the model does not have"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with _without_storage_replaced(model):
            inject_adapter_in_model(_config(spec), model, adapter_name=_ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_FACTOR.match(name) is not None)
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


@contextmanager
def _without_storage_replaced(model: torch.nn.Module) -> Iterator[None]:
    """Put empty tensors in the place of weights without storage within the block.

    peft moves a new adapter to the device of the weight beside it: to none, its values lost.
    """
    replaced = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()  # noqa: SLF001 - setattr would check them
        if parameter is not None and parameter.is_meta
    ]
    for module, name, parameter in replaced:
        empty = torch.empty(0, dtype=parameter.dtype)
        module._parameters[name] = torch.nn.Parameter(empty)  # noqa: SLF001
    try:
        yield
    finally:
        for module, name, parameter in replaced:
            module._parameters[name] = parameter  # noqa: SLF001


@contextmanager
def adapters_off(model: torch.nn.Module) -> Iterator[None]:
    """Disable the adapters within the block: the model is then the KL term's reference."""
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    try:
        for layer in layers:
            layer._disable_adapters = True  # noqa: SLF001 - enable_adapters() would thaw and freeze
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False  # noqa: SLF001


def merged(tensors: Mapping[str, torch.Tensor], spec: AdapterShape) -> dict[str, torch.Tensor]:
    """Merge float32 adapters into the weights, under transformers' names: W + alpha/r x B A."""
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if _FACTOR.match(name):
            continue
        layer = name.removesuffix(_BASE)
        if layer == name:
            weights[name] = tensor
            continue
        first, second = (tensors[f"{layer}.lora_{x}.{_ADAPTER}.weight"] for x in "AB")
        delta = second.float() @ first.float() * (spec.alpha / spec.rank)
        weights[f"{layer}.weight"] = tensor.float() + delta
    return weights


def factors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the adapter's tensors alone, under peft's names in a file."""
    return {
        f"base_model.model.{match[1]}.lora_{match[2]}.weight": tensor.contiguous()
        for name, tensor in tensors.items()
        if (match := _FACTOR.match(name))
    }


def save_adapter(factors: Mapping[str, torch.Tensor], spec: AdapterShape, directory: Path) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors` as peft does and vLLM reads."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(dict(factors), directory / "adapter_model.safetensors", metadata={"format": "pt"})
    _config(spec).save_pretrained(str(directory))


def _config(spec: AdapterShape) -> LoraConfig:
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=spec.rank,
        lora_alpha=spec.alpha,
        target_modules=list(spec.target_modules),
        lora_dropout=0.0,
        bias="none",
    )
