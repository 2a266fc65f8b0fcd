"""LoRA: the adapters of a policy, their files, and the merged weights.

The only file that names peft. Source: Hu et al. 2021 (arXiv:2106.09685).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.learner import LoraSpec

_ADAPTER = "default"
_FACTOR = re.compile(rf"^(.+)\.lora_([AB])\.{_ADAPTER}\.weight$")
_BASE = ".base_layer.weight"


def add_adapters(model: Qwen3ForCausalLM, spec: LoraSpec, *, seed: int) -> None:
    """Put float32 adapters beside the targeted layers, in place, and freeze everything else.

    The first factor is drawn from `seed`, the second is 0: the policy is unchanged at first.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(_config(spec), model, adapter_name=_ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_FACTOR.match(name) is not None)
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


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


def merged(tensors: Mapping[str, torch.Tensor], spec: LoraSpec) -> dict[str, torch.Tensor]:
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


def save_adapter(factors: Mapping[str, torch.Tensor], spec: LoraSpec, directory: Path) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors` as peft does and vLLM reads."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(dict(factors), directory / "adapter_model.safetensors", metadata={"format": "pt"})
    _config(spec).save_pretrained(str(directory))


def _config(spec: LoraSpec) -> LoraConfig:
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=spec.rank,
        lora_alpha=spec.alpha,
        target_modules=list(spec.target_modules),
        lora_dropout=0.0,
        bias="none",
    )
