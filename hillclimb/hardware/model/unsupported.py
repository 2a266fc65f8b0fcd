"""Names on the hub that say of themselves that a model cannot be trained here, and what would do.

A name is all that is known before anything is rented. One that is in no rule is tried: the trainer
reads the model's config and refuses what it does not compute exactly (docs/models.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hillclimb.hardware.model.published import hub_name

_DENSE = "Qwen3 (0.6B to 32B), Qwen3.5 (4B to 27B), Qwen2.5 or Llama 3"
_SPARSE = "Qwen3-30B-A3B, Qwen3-235B-A22B or Qwen3.5-35B-A3B"
_ELSEWHERE = "or a server of the Tinker protocol that has the model (docs/tinker.md)"


@dataclass(frozen=True, slots=True)
class _Rule:
    names: re.Pattern[str]
    why: str
    remedy: str
    unless: re.Pattern[str] | None = None
    """Of these names the rule says nothing."""


_RULES = (
    _Rule(
        re.compile(r"-(AWQ|GPTQ|FP8|GGUF|NVFP4|MXFP4|MLX|bnb|Int[48]|[48]bit)\b", re.IGNORECASE),
        "its weights are quantised, and only whole weights are trained",
        "name the model that it was made from",
    ),
    _Rule(
        re.compile(r"-(VL|Omni|Audio)\b|-Vision\b", re.IGNORECASE),
        "it reads images or sound, and only text is trained",
        f"use a text model such as {_DENSE}",
    ),
    _Rule(
        re.compile(r"/Qwen3\.[7-9]|/Qwen3-(Coder-)?Next"),
        "its layers of linear attention are not those of Qwen3.5, the only ones that were compared",
        f"use a dense model such as {_DENSE}, {_ELSEWHERE}",
    ),
    _Rule(
        re.compile(r"-A\d+(\.\d+)?B|Mixtral|/gpt-oss|/DeepSeek-(V|R1$|R1-0)|/Kimi-K|/GLM-4\.[5-9]"),
        "it is a mixture of experts of a family that the learner does not compute yet",
        f"use {_SPARSE}, a dense model such as {_DENSE}, {_ELSEWHERE}",
        unless=re.compile(r"/Qwen3(\.[56])?-(Coder-)?\d+B-A\d"),
    ),
    _Rule(
        re.compile(
            r"/(gemma|Phi|phi|Mistral|Ministral|falcon|gpt2|OLMo|Llama-2|Llama-4)", re.ASCII
        ),
        "its family is not supported",
        f"use {_DENSE}",
    ),
)


def why_unsupported(source: str) -> str | None:
    """Return why `model.source` cannot be trained, and what would do; None where it may be."""
    name = hub_name(source)
    if name is None:
        return None
    for rule in _RULES:
        if rule.names.search(name) and not (rule.unless and rule.unless.search(name)):
            return f"model.source is {name}: {rule.why}. Remedy: {rule.remedy}."
    return None
