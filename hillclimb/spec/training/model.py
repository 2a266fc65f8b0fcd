"""The section `model`: the policy that training starts from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from hillclimb.spec.hosts import refuse_settings_in
from hillclimb.spec.section import Section
from hillclimb.spec.training.pinned_models import pin, refuse_plain_name

RUN = "run:"
_RUN = re.compile(r"run:(run_[0-9a-z]{10,40})(?:@(\d{1,9})(?:/attempt-(\d{1,9}))?)?")
_PINNED = re.compile(r"hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCheckpoint:
    """A checkpoint that a `model.source` names; None: the newest one."""

    run_id: str
    step: int | None
    attempt: int | None

    def __str__(self) -> str:
        step = "" if self.step is None else f"@{self.step}"
        attempt = "" if self.attempt is None else f"/attempt-{self.attempt}"
        return f"{RUN}{self.run_id}{step}{attempt}"


def checkpoint_source(source: str) -> NamedCheckpoint | None:
    """Return the checkpoint that a `model.source` names; None for a model from elsewhere."""
    match = _RUN.fullmatch(source)
    if match is None:
        return None
    run_id, step, attempt = match.groups()
    return NamedCheckpoint(
        run_id=run_id,
        step=None if step is None else int(step),
        attempt=None if attempt is None else int(attempt),
    )


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
    `s3://BUCKET/PREFIX`, `run:RUN` or `run:RUN@STEP` for the policy of a checkpoint of another run,
    whose step, optimizer and tasks are not continued (RUN is its id; the command line also takes a
    name or `@last`), or a path to a Hugging Face directory that the runner's machine can
    read. The service accepts buckets and paths below a prefix that its operator allows
    (docs/secrets.md). The plain names `Qwen/Qwen3-8B` and `Qwen/Qwen3-32B` are accepted and stored
    with a commit."""
    rope: YarnSpec | None = None
    """Extend the context by YaRN; null keeps the positions of the model's config."""

    @model_validator(mode="after")
    def _revision_is_pinned(self) -> Self:
        refuse_plain_name(self.source)
        refuse_settings_in("model.source", self.source)
        if self.source.startswith(RUN) and checkpoint_source(self.source) is None:
            raise ValueError(
                f"{self.source!r} names no checkpoint: write run:RUN or run:RUN@STEP with the id of"
                " a run"
            )
        if self.source.startswith("hf:") and not _PINNED.fullmatch(self.source):
            raise ValueError(
                f"{self.source!r} does not pin a revision: write hf:ORG/NAME@REVISION with the full"
                " commit hash (40 hexadecimal digits)"
            )
        return self
