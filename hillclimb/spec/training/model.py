"""The section `model`: the policy that training starts from."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from hillclimb.spec.section import Section
from hillclimb.spec.training.pinned_models import pin, refuse_plain_name

_PINNED = re.compile(r"hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}")


class YarnSpec(Section):
    """Context extension by YaRN (Peng et al. 2023, arXiv:2309.00071)."""

    factor: Annotated[float, Field(gt=1.0, le=64.0)]
    """Factor by which the context becomes longer."""
    original_max_position_embeddings: Annotated[int, Field(ge=16, le=2_000_000)]
    """Context that the model was trained with (tokens); the new one is `factor` times as long."""


def _pin(value: object) -> object:
    """Turn `Qwen/Qwen3-8B` into the source with its commit."""
    return pin(value) if isinstance(value, str) else value


class ModelSpec(Section):
    """The policy to start from."""

    source: Annotated[str, Field(min_length=1, max_length=1024), BeforeValidator(_pin)] = (
        "builtin:tiny-qwen3-a"
    )
    """`builtin:NAME` for a model shipped with Hillclimb, `hf:ORG/NAME@REVISION` for a model of the
    Hugging Face hub (REVISION is the full commit hash: a branch or tag can move),
    `s3://BUCKET/PREFIX`, or a path to a Hugging Face directory that the runner's machine can
    read. The plain names `Qwen/Qwen3-8B` and `Qwen/Qwen3-32B` are accepted and stored with a
    commit."""
    rope: YarnSpec | None = None
    """Extend the context by YaRN; null keeps the positions of the model's config."""

    @model_validator(mode="after")
    def _revision_is_pinned(self) -> Self:
        refuse_plain_name(self.source)
        if self.source.startswith("hf:") and not _PINNED.fullmatch(self.source):
            raise ValueError(
                f"{self.source!r} does not pin a revision: write hf:ORG/NAME@REVISION with the full"
                " commit hash (40 hexadecimal digits)"
            )
        return self
