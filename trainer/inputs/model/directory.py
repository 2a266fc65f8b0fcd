"""A policy's Hugging Face directory: loading, support checks, and the files written into it."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from hillclimb.spec.training.model import ModelSpec
from trainer.errors import ModelUnavailable
from trainer.inputs.model.families.family import CausalLM, CausalLMConfig, text_half
from trainer.inputs.model.families.registry import check_supported, family_of
from trainer.inputs.model.rope import apply_rope, check_theta
from trainer.inputs.model.weights import WeightFiles, weight_files

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
)
LEFT_OUT = "hillclimb_left_out"
"""In the `config.json` of a saved policy: the number of weights, by the beginning of their names,
that belong to the checkpoint that training started from and not to its text model."""
_OF_OTHERS = ("model.visual.", "mtp.")
"""Beginnings of the names of weights of an image encoder and of heads that draft tokens."""
_log = logging.getLogger(__name__)


def load_policy(directory: Path, spec: ModelSpec | None = None) -> CausalLM:
    """Load a Hugging Face directory in float32; its positions are those of `spec`.

    Raises:
        ModelUnavailable: its files cannot be read, or a weight is missing or of another shape.
        SpecError: the directory holds a model of no supported family.
    """
    config = load_config(directory, spec)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        # Weights in pickles are not read. Without the report, transformers fills in missing weights
        # with random numbers.
        loading: Any = family_of(config).model_class.from_pretrained(
            directory,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as fault:
        raise ModelUnavailable(f"cannot load the model in {directory}: {fault}") from fault
    model: CausalLM = loading[0]
    missing = sorted(loading[1]["missing_keys"])
    if missing:
        raise ModelUnavailable(
            f"the model in {directory} lacks {len(missing)} weights: {missing[0]}"
        )
    _say_left_out(model, directory)
    return model


def _say_left_out(model: CausalLM, directory: Path) -> None:
    """Warn of weights that are not the text model's, and count them in its config."""
    if left_out := _left_out(directory):
        _log.warning("the text model alone is trained; left out are %s", left_out)
        setattr(model.config, LEFT_OUT, left_out)


def _left_out(directory: Path) -> dict[str, int]:
    """Count the weights that transformers passes over without a word."""
    numbers: Counter[str] = Counter()
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - the file is no mapping
                numbers.update(each for each in _OF_OTHERS if name.startswith(each))
    return dict(numbers)


def unread_policy(
    directory: Path, spec: ModelSpec | None = None
) -> tuple[CausalLM, WeightFiles] | None:
    """Return the policy of `load_policy` without storage, and the files that have its weights.

    None where the files cannot be read in parts: they lack a tensor, or there is a fault, which
    `load_policy` names.
    """
    config = load_config(directory, spec)
    files = weight_files(directory)
    if files is None:
        return None
    with torch.device("meta"):
        model: CausalLM = family_of(config).model_class(config)
    # No file has its frequencies: they are computed.
    rotary: Any = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config)
    if any(each.is_meta for each in model.buffers()) or not files.cover(model.named_parameters()):
        return None
    model.train(mode=False)
    _say_left_out(model, directory)
    generating: Any = model
    generating.adjust_generation_fn(
        None, False, False, directory, cache_dir=None, force_download=False, proxies=None,  # noqa: FBT003 - transformers' own
        local_files_only=True, token=None, revision=None, subfolder="", trust_remote_code=False,
    )  # fmt: skip
    return model, files


def load_config(directory: Path, spec: ModelSpec | None = None) -> CausalLMConfig:
    """Load the config of a Hugging Face directory, with the positions of `spec`.

    Of a checkpoint that holds more than text it is the text model's.

    Raises:
        ModelUnavailable: it cannot be read.
        SpecError: the directory holds a model of no supported family, or says nothing, or
            something else than `spec`, about its positions.
    """
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        raw = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as fault:
        raise ModelUnavailable(f"cannot load the model in {directory}: {fault}") from fault
    supported = check_supported(text_half(config))
    check_theta(raw)
    apply_rope(supported, spec or ModelSpec())
    return supported


def count_parameters(config: CausalLMConfig) -> int:
    """Return how many parameters a policy of this config has; tied weights count once."""
    with torch.device("meta"):
        model: CausalLM = family_of(config).model_class(config)
    return sum(parameter.numel() for parameter in model.parameters())


def save_config(config: CausalLMConfig, directory: Path, dtype: torch.dtype | None = None) -> None:
    """Write `config.json` with its architecture named, and `dtype` as that of the weights."""
    named = copy.deepcopy(config)
    # Without it vLLM takes the model for a pooling model.
    named.architectures = [family_of(config).architecture]
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
