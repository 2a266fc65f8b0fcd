"""The model that a server offers: loaded once, copied for each adapter."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.families.family import CausalLM, CausalLMConfig
from trainer.inputs.model.families.registry import family_of
from trainer.learners.model.export import EMBEDDING, HEAD

ALPHA = 32
"""Adapters are scaled by this over their rank."""
_IN_FILE = "base_model.model."


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A policy that never changes."""

    name: str
    """As clients name it."""
    model: CausalLM

    @classmethod
    def load(cls, name: str, directory: Path) -> BaseModel:
        """Load a Hugging Face directory.

        Raises:
            ModelUnavailable, SpecError: as `load_policy`.
        """
        model = load_policy(directory)
        model.train(mode=False)
        return cls(name, model)

    @property
    def config(self) -> CausalLMConfig:
        """Its architecture."""
        return self.model.config

    @property
    def architecture(self) -> str:
        """Its name in `config.json`."""
        return family_of(self.config).architecture

    @property
    def context(self) -> int:
        """Longest sequence (tokens)."""
        return int(self.config.max_position_embeddings)

    def copy(self) -> CausalLM:
        """Return a model that may be changed."""
        return copy.deepcopy(self.model)

    def weights(self, adapter: Path | None = None) -> dict[str, torch.Tensor]:
        """Return weights by Hugging Face name, with an adapter in peft's form worked in."""
        weights = dict(self.model.state_dict())
        weights.setdefault(HEAD, weights[EMBEDDING])
        if adapter is None:
            return weights
        factors = load_file(adapter / "adapter_model.safetensors")
        for name, first in factors.items():
            if not name.endswith(".lora_A.weight"):
                continue
            layer = name.removeprefix(_IN_FILE).removesuffix(".lora_A.weight")
            second = factors[f"{_IN_FILE}{layer}.lora_B.weight"]
            scale = ALPHA / first.shape[0]
            weights[f"{layer}.weight"] = weights[f"{layer}.weight"] + scale * second @ first
        return weights
