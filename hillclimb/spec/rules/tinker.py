"""Rules of Tinker runs: rejects settings that the Tinker protocol does not support."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.spec.backend.tinker import TinkerSpec
from hillclimb.spec.section import Section
from hillclimb.spec.sections import RunSections

LOSSES = {"regular": "ppo", "cispo": "cispo"}
"""The server's loss for each supported `algorithm.policy_loss_type`."""


def refuse_beyond_tinker(spec: RunSections, tinker: TinkerSpec) -> None:
    """Refuse settings that a Tinker server does not support.

    Raises:
        ValueError: a sentence that names what to change.
    """
    tinker.model_for(spec.model.source)
    for sentence in _beyond(spec, tinker):
        raise ValueError(f"backend tinker: {sentence}")


def _beyond(spec: RunSections, tinker: TinkerSpec) -> Iterator[str]:
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
        yield "the server samples, so no run is deterministic: leave deterministic out"
    if spec.model.rope is not None:
        yield "the server sets positions, so model.rope (YaRN) has no effect: leave it out"
    yield from _beyond_sections(spec)
    yield from _beyond_loss(spec)


def _beyond_sections(spec: RunSections) -> Iterator[str]:
    """Yield settings of local computation, which the server does instead."""
    if spec.learner.lora is not None:
        yield "the server makes the adapters: set tinker.lora_rank and leave learner.lora out"
    for name, section in (("learner", spec.learner), ("engine", spec.engine)):
        for key in _set_in(section):
            yield f"the server computes, so {name}.{key} has no effect: leave it out"
    for key in _set_in(spec.placement):
        if key != "type" or spec.placement.type == "ray":
            yield f"all workers are in one process, so placement.{key} has no effect: leave it out"
    if spec.optimizer.max_grad_norm is not None:
        yield (
            "not every server clips gradients, and none says whether it did: set"
            " optimizer.max_grad_norm to null"
        )


def _beyond_loss(spec: RunSections) -> Iterator[str]:
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
                " it to 1, or the trained policy differs from the one that sampled"
            )


def _set_in(section: Section) -> Iterator[str]:
    for key, field in type(section).model_fields.items():
        if getattr(section, key) != field.get_default(call_default_factory=True):
            yield key
