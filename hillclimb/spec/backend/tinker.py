"""The section `backend.tinker`: a server that samples, computes gradients and keeps the weights."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from hillclimb.spec.hosts import refuse_overheard
from hillclimb.spec.section import Seconds, Section

DEFAULT_BASE_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Tinker's own service, the default of its SDK 0.24.1."""

_HUB = re.compile(r"hf:([\w.-]+/[\w.-]+)@")
_BUILTIN = "builtin:"


def _not_overheard(url: str) -> str:
    refuse_overheard("backend.tinker.base_url", url, "the runner's key travels")
    return url


class TinkerSpec(Section):
    """A server of the Tinker protocol; its key is the runner's variable `TINKER_API_KEY`."""

    base_url: (
        Annotated[
            str,
            Field(pattern=r"^https?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048),
            AfterValidator(_not_overheard),
        ]
        | None
    ) = None
    """Address of the server; null: `TINKER_BASE_URL` (or `TINKER_API_URL`) of the runner's
    environment, else Tinker's own. Anything but a server on the runner's machine needs https and
    `experimental: true`, and must be one of these two: the runner's key is sent nowhere else."""
    base_model: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]+$", max_length=512)] | None = None
    """The server's name of the model (`Qwen/Qwen3-8B`); the trainer queries its availability and
    context length at the start. null: the name in `model.source`, which names the tokenizer."""
    lora_rank: Annotated[int, Field(ge=1, le=512)] = 32
    """Rank of the adapter, up to the server's limit; the server chooses its scale."""
    train_attn: bool = True
    """Adapt the attention layers."""
    train_mlp: bool = True
    """Adapt the feed-forward layers, experts included."""
    train_unembed: bool = False
    """Adapt the output head too; vLLM does not load such an adapter."""
    losses: Literal["summed", "averaged"] = "summed"
    """The server's reduction of an update's token losses. `summed`: their sum, as Tinker and
    `hillclimb tinker serve` do. `averaged`: the mean over each sequence, prompt included, and over
    the sequences, as SkyRL 0.3.0 does on JAX. Either way the advantages are scaled so that the
    learning rate has the same effect as on a runner."""
    call_timeout_s: Seconds = 600.0
    """Deadline of one response of the server, its queue included (seconds), smaller than
    `schedule.step_timeout_s`; exceeding it ends the attempt."""

    def model_for(self, source: str) -> str:
        """Return the server's name of the model whose tokenizer `source` names.

        Raises:
            ValueError: a sentence that names what to change.
        """
        own = named_in(source)
        if self.base_model is None:
            if own is None:
                raise ValueError(
                    f"model.source {source!r} is a directory, which names no model of the server:"
                    " set backend.tinker.base_model to the server's name of this one"
                )
            return own
        if own is not None and own != _without_variant(self.base_model):
            raise ValueError(
                f"backend.tinker.base_model is {self.base_model}, and model.source {source!r} names"
                " the tokenizer of another model: name the same model in both"
            )
        return self.base_model


def named_in(source: str) -> str | None:
    """Return the model that a `model.source` names; a directory or bucket names none."""
    hub = _HUB.match(source)
    if hub is not None:
        return hub[1]
    return source if source.startswith(_BUILTIN) else None


def _without_variant(name: str) -> str:
    """Return `ORG/NAME` of `ORG/NAME/VARIANT` and `ORG/NAME:VARIANT`, which share a tokenizer."""
    if name.startswith(_BUILTIN):
        return name
    return "/".join(name.partition(":")[0].split("/")[:2])
