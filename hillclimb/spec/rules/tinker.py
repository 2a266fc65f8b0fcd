"""The section `backend.tinker`, and what a server of the Tinker protocol cannot be asked for.

Such a server samples, computes gradients and keeps the weights; the loop, the rollouts and the
advantages stay here. What it has no call for is refused when a spec is submitted, not at step 80.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from trainer.contract.hosts import refuse_overheard
from trainer.contract.section import Seconds, Section

if TYPE_CHECKING:
    from trainer.contract.spec import RunSpec

DEFAULT_BASE_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Tinker's own service, as the SDK 0.24.1 knows it."""

LOSSES = {"regular": "ppo", "cispo": "cispo"}
"""The server's loss for each `algorithm.policy_loss_type` that it has one for."""

_HUB = re.compile(r"hf:([\w.-]+/[\w.-]+)@")
_BUILTIN = "builtin:"


def _not_overheard(url: str) -> str:
    refuse_overheard("backend.tinker.base_url", url, "the runner's key travels")
    return url


class TinkerSpec(Section):
    """A server of the Tinker protocol. The key comes from `TINKER_API_KEY` of the runner."""

    base_url: (
        Annotated[
            str,
            Field(pattern=r"^https?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048),
            AfterValidator(_not_overheard),
        ]
        | None
    ) = None
    """Where the server is; null: `TINKER_BASE_URL` (or `TINKER_API_URL`) of the runner's
    environment, else Tinker's own. Anything but a server on the runner's machine needs https and
    `experimental: true`, and must be one of these two: the runner's key goes nowhere else."""
    base_model: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]+$", max_length=512)] | None = None
    """The model by the server's own name (`Qwen/Qwen3-8B`); its context and whether it is there are
    asked of the server when the trainer starts. null: the name in `model.source`, which gives the
    tokenizer."""
    lora_rank: Annotated[int, Field(ge=1, le=512)] = 32
    """Rank of the adapter, up to what the server allows; its scale is the server's own."""
    train_attn: bool = True
    """Adapt the attention layers."""
    train_mlp: bool = True
    """Adapt the feed-forward layers, experts included."""
    train_unembed: bool = False
    """Adapt the head too; vLLM does not load such an adapter."""
    losses: Literal["summed", "averaged"] = "summed"
    """What the server makes of the losses of an update's tokens. `summed`: their sum, as Tinker and
    `hillclimb tinker serve` do. `averaged`: the mean over each sequence, prompt included, and over
    the sequences, as SkyRL 0.3.0 does on JAX. Either way the advantages are scaled so that the
    learning rate means what it means on a runner."""
    call_timeout_s: Seconds = 600.0
    """Longest wait for one answer of the server, its queue included (seconds), smaller than
    `schedule.step_timeout_s`; passing it ends the attempt."""

    def model_for(self, source: str) -> str:
        """Return the server's name of the model whose tokenizer `source` gives.

        Raises:
            ValueError: a sentence that names what to change.
        """
        own = named_in(source)
        if self.base_model is None:
            if own is None:
                raise ValueError(
                    f"model.source {source!r} is a directory, which says nothing of the server's"
                    " models: set backend.tinker.base_model to the server's name of this one"
                )
            return own
        if own is not None and own != _without_variant(self.base_model):
            raise ValueError(
                f"backend.tinker.base_model is {self.base_model}, and model.source {source!r} gives"
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
    """`ORG/NAME` of `ORG/NAME/VARIANT` and `ORG/NAME:VARIANT`, which share a tokenizer."""
    if name.startswith(_BUILTIN):
        return name
    return "/".join(name.partition(":")[0].split("/")[:2])


def refuse_beyond_tinker(spec: RunSpec, tinker: TinkerSpec) -> None:
    """Refuse what a spec asks for and a Tinker server has no call for.

    Raises:
        ValueError: a sentence that names what to change.
    """
    tinker.model_for(spec.model.source)
    for sentence in _beyond(spec, tinker):
        raise ValueError(f"backend tinker: {sentence}")


def _beyond(spec: RunSpec, tinker: TinkerSpec) -> Iterator[str]:
    if not (tinker.train_attn or tinker.train_mlp or tinker.train_unembed):
        yield "nothing would be trained: set tinker.train_attn, train_mlp or train_unembed to true"
    if tinker.call_timeout_s >= spec.schedule.step_timeout_s:
        yield (
            f"tinker.call_timeout_s ({tinker.call_timeout_s:g}) must be smaller than"
            f" schedule.step_timeout_s ({spec.schedule.step_timeout_s:g}): lower the first or raise"
            " the second"
        )
    if spec.kind == "probe":
        yield "a probe samples on a runner: set backend.type to runner, or kind to eval"
    if spec.deterministic:
        yield "a server decides what is drawn, so no run is deterministic: leave deterministic out"
    if spec.model.rope is not None:
        yield "positions are the server's own, so model.rope (YaRN) has no effect: leave it out"
    yield from _beyond_sections(spec)
    yield from _beyond_loss(spec)


def _beyond_sections(spec: RunSpec) -> Iterator[str]:
    """What says how this machine would compute, where a server does."""
    if spec.learner.lora is not None:
        yield "adapters are made by the server: set tinker.lora_rank and leave learner.lora out"
    for name, section in (("learner", spec.learner), ("engine", spec.engine)):
        for key in _set_in(section):
            yield f"the server computes, so {name}.{key} is read by nobody: leave it out"
    for key in _set_in(spec.placement):
        if key != "type" or spec.placement.type == "ray":
            yield f"all workers are in one process, so placement.{key} is not read: leave it out"
    if spec.optimizer.max_grad_norm is not None:
        yield (
            "not every server clips gradients, and none says whether it did: set"
            " optimizer.max_grad_norm to null"
        )


def _beyond_loss(spec: RunSpec) -> Iterator[str]:
    algorithm = spec.algorithm
    if algorithm.policy_loss_type not in LOSSES:
        yield (
            f"there is no loss for policy_loss_type {algorithm.policy_loss_type}: set"
            f" algorithm.policy_loss_type to {' or '.join(LOSSES)}"
        )
    if algorithm.use_kl_loss:
        yield (
            "there is no reference model, and no loss with a divergence from one: set"
            " algorithm.use_kl_loss to false"
        )
    if algorithm.off_policy_correction.is_on:
        yield (
            "the losses take no weights or masks for rollouts of another policy: leave"
            " algorithm.off_policy_correction out"
        )
    drawn_at = {"rollout.temperature": spec.rollout.temperature} | {
        f"environment.overrides.{key}.temperature": override.temperature
        for key, override in spec.environment.overrides.items()
        if override.temperature is not None
    }
    for setting, temperature in drawn_at.items():
        if spec.kind == "train" and temperature != 1.0:
            yield (
                f"the losses score tokens at temperature 1, and {setting} is {temperature:g}: set"
                " it to 1, or what is trained is another policy than the one that sampled"
            )


def _set_in(section: Section) -> Iterator[str]:
    for key, field in type(section).model_fields.items():
        if getattr(section, key) != field.get_default(call_default_factory=True):
            yield key
