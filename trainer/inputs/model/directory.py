"""A policy's Hugging Face directory: loading, support checks, and the files written into it."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from hillclimb.spec.training.model import ModelSpec
from trainer.errors import ModelUnavailable, SpecError
from trainer.inputs.model.rope import apply_rope, check_theta

ARCHITECTURE = "Qwen3ForCausalLM"
"""Named in every config we write: without it vLLM takes the model for a pooling model."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def load_policy(directory: Path, spec: ModelSpec | None = None) -> Qwen3ForCausalLM:
    """Load a Hugging Face directory as a float32 Qwen3; its positions are those of `spec`.

    Raises:
        ModelUnavailable: its files cannot be read, or a weight is missing or of another shape.
        SpecError: the directory holds another architecture than Qwen3.
    """
    config = load_config(directory, spec)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        # Weights in pickles are not read. Without the report, transformers fills in missing weights
        # with random numbers.
        loading: Any = Qwen3ForCausalLM.from_pretrained(
            directory,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as fault:
        raise ModelUnavailable(f"cannot load the model in {directory}: {fault}") from fault
    model: Qwen3ForCausalLM = loading[0]
    missing = sorted(loading[1]["missing_keys"])
    if missing:
        raise ModelUnavailable(
            f"the model in {directory} lacks {len(missing)} weights: {missing[0]}"
        )
    return model


def load_config(directory: Path, spec: ModelSpec | None = None) -> Qwen3Config:
    """Load the config of a Hugging Face directory, with the positions of `spec`.

    Raises:
        ModelUnavailable: it cannot be read.
        SpecError: the directory holds another architecture than Qwen3, or says nothing, or
            something else than `spec`, about its positions.
    """
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        raw = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as fault:
        raise ModelUnavailable(f"cannot load the model in {directory}: {fault}") from fault
    supported = check_supported(config)
    check_theta(raw)
    apply_rope(supported, spec or ModelSpec())
    return supported


def check_supported(config: object) -> Qwen3Config:
    """Return `config` when it is a Qwen3 that engine and learner compute exactly.

    Raises:
        SpecError: another architecture, or an option of Qwen3 that is not built in.
    """
    if not isinstance(config, Qwen3Config):
        raise SpecError(f"only Qwen3 is supported, not {type(config).__name__}")
    if config.attention_bias or config.use_sliding_window or config.attention_dropout:
        raise SpecError(
            "attention_bias, use_sliding_window and attention_dropout are not supported"
        )
    if config.hidden_act != "silu":
        raise SpecError(f"hidden_act {config.hidden_act!r} is not supported: use silu")
    return config


def count_parameters(config: Qwen3Config) -> int:
    """Return how many parameters a policy of this config has; tied weights count once."""
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    return sum(parameter.numel() for parameter in model.parameters())


def save_config(config: Qwen3Config, directory: Path, dtype: torch.dtype | None = None) -> None:
    """Write `config.json` with its architecture named, and `dtype` as that of the weights."""
    named = copy.deepcopy(config)
    named.architectures = [ARCHITECTURE]
    if dtype is not None:
        named.dtype = dtype
    named.save_pretrained(directory)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer files that `source` has into `target`, byte for byte.

    A tokenizer that was made again under fixed weights silently scores 0: it is only ever copied.
    """
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
