"""Suggestions for a run that does not fit: changes of the spec, each tested by the estimate."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from pydantic import ValidationError

from hillclimb.hardware.estimate import Estimate, estimate
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.backend.gang import why_engines_split, why_not_on
from hillclimb.spec.backend.skypilot import CandidateSpec
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.engine import Transport
from hillclimb.spec.training.learner import LoraSpec

LENGTH_STEP = 4096
"""Step between tested lengths (tokens)."""
_SPLITS = (2, 4, 8)
"""Numbers of GPUs of an engine that are tried for a model too large for the spec's own."""


def suggestions(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None = None
) -> tuple[str, ...]:
    """Return the changes of the spec, each of which alone makes the run fit on these machines."""
    return tuple(
        words
        for words, changed in _changes(spec, candidate, num_nodes, shape)
        if _fits(changed, candidate, num_nodes, shape)
    )


def _changes(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> Iterator[tuple[str, RunSpec]]:
    learner = spec.learner
    if learner.policy_dtype != "bfloat16":
        yield "learner.policy_dtype bfloat16", _with(spec, "learner", policy_dtype="bfloat16")
    if not learner.activation_checkpointing:
        yield (
            "learner.activation_checkpointing true",
            _with(spec, "learner", activation_checkpointing=True),
        )
    if learner.optimizer_moments != "int8":
        yield "learner.optimizer_moments int8", _with(spec, "learner", optimizer_moments="int8")
    if not learner.cpu_offload:
        yield "learner.cpu_offload true", _with(spec, "learner", cpu_offload=True)
    yield from _shared_sequences(spec, candidate, num_nodes, shape)
    if learner.lora is None:
        yield _with_adapters(spec)
    yield from _separate(spec, candidate, num_nodes, shape)
    yield from _shorter(spec, candidate, num_nodes, shape)


def _shared_sequences(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> Iterator[tuple[str, RunSpec]]:
    """Yield the smallest context group that makes the run fit, with passes as long as before."""
    learner = spec.learner
    for size in range(learner.context_parallel_size + 1, spec.placement.learner_ranks + 1):
        tokens = ceil(learner.max_micro_tokens * learner.context_parallel_size / size)
        changed = _with(spec, "learner", context_parallel_size=size, max_micro_tokens=tokens)
        if _fits(changed, candidate, num_nodes, shape):
            yield (
                f"learner.context_parallel_size {size}, learner.max_micro_tokens {tokens}",
                changed,
            )
            return


def _with(spec: RunSpec, section: str, **values: Any) -> RunSpec:  # noqa: ANN401 - of any key
    changed = getattr(spec, section).model_copy(update=values)
    return spec.model_copy(update={section: changed})


def _with_adapters(spec: RunSpec) -> tuple[str, RunSpec]:
    words, changed = "learner.lora {}", _with(spec, "learner", lora=LoraSpec())
    if spec.engine.is_direct:
        words += ", engine.weight_transport lora"
        changed = _with(changed, "engine", weight_transport="lora")
    return f"{words} (only adapters are trained)", changed


def _separate(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> Iterator[tuple[str, RunSpec]]:
    """Yield a division of the GPUs between engines and learner, with the fewest further changes."""
    if spec.kind != "train":
        return
    where = (candidate, num_nodes, shape)
    bases = [("", spec), (", learner.cpu_offload true", _with(spec, "learner", cpu_offload=True))]
    if spec.learner.lora is None and not _fits(_with_adapters(spec)[1], *where):
        bases.append((", learner.lora {}", _with(spec, "learner", lora=LoraSpec())))
    for more, base in bases:
        estimated = _apart(base, *where)
        if estimated is not None:
            words, changed = estimated
            yield words + more, changed
            return


def _apart(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> tuple[str, RunSpec] | None:
    """Return the division that fits, is not the spec's own, and keeps the GPUs busiest on paper.

    Engines are over more GPUs than the spec's only where the model needs it.
    """
    available, own = candidate.gpus * num_nodes, spec.engine.tensor_parallel_size
    transport: Transport = "nccl" if spec.learner.lora is None else "lora"
    for size in (own, *(each for each in _SPLITS if own < each < candidate.gpus)):
        fitting: list[tuple[float, str, RunSpec]] = []
        for engines in range((available - 1) // size, 0, -1):
            words, changed = _divided(spec, engines, size, available - engines * size, transport)
            fit = _estimated(changed, candidate, num_nodes, shape) if words else None
            if fit is not None and fit.fits is True:
                time = fit.step_time
                fitting.append((0.0 if time is None else time.busy_share, words, changed))
        if fitting:
            _, words, changed = max(fitting, key=lambda each: each[0])
            return words, changed
    return None


def _divided(
    spec: RunSpec, engines: int, size: int, ranks: int, transport: Transport
) -> tuple[str, RunSpec]:
    """Return what is new in a spec with these engines and ranks, and the spec; "" for its own."""
    engine: dict[str, object] = {
        "weight_transport": transport,
        "data_parallel_size": engines,
        "tensor_parallel_size": size,
        "type": "vllm",
    }
    placement: dict[str, object] = {"learner_ranks": ranks, "type": "ray"}
    changed = _with(_with(spec, "engine", **engine), "placement", **placement)
    shares = spec.engine.weight_transport == "ipc"
    sizes = (engines, size, ranks)
    own = (spec.engine.data_parallel_size, spec.engine.tensor_parallel_size)
    if not shares and sizes == (*own, spec.placement.learner_ranks):
        return "", changed
    named = [("engine", key, value) for key, value in engine.items()]
    named += [("placement", key, value) for key, value in placement.items()]
    new = [
        f"{section}.{key} {value}"
        for section, key, value in named
        if getattr(getattr(spec, section), key) != value
    ]
    how = "engines and learner on separate GPUs" if shares else "another division of the GPUs"
    return f"{how}: {', '.join(new)}", changed


def _shorter(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> Iterator[tuple[str, RunSpec]]:
    rollout, passes = spec.rollout, spec.learner.max_micro_tokens
    length = rollout.max_sequence_length
    for tokens in range((length - 1) // LENGTH_STEP * LENGTH_STEP, 0, -LENGTH_STEP):
        read = min(rollout.max_input_length, tokens - rollout.max_generate_length)
        changed = _with(spec, "rollout", max_sequence_length=tokens, max_input_length=read)
        changed = _with(changed, "learner", max_micro_tokens=min(passes, tokens))
        if _fits(changed, candidate, num_nodes, shape):
            words = f"rollout.max_sequence_length {tokens}"
            words += f", rollout.max_input_length {read}" * (read < rollout.max_input_length)
            words += f", learner.max_micro_tokens {tokens}" * (tokens < passes)
            yield words, changed
            return


def _fits(
    changed: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> bool:
    """Tell whether the changed spec is valid and fits."""
    fit = _estimated(changed, candidate, num_nodes, shape)
    return fit is not None and fit.fits is True


def _estimated(
    changed: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None
) -> Estimate | None:
    """Return the estimate of the changed spec; None where it is not valid on these machines."""
    try:
        # `model_copy` does not validate.
        spec = RunSpec.model_validate(changed.model_dump())
    except ValidationError:
        return None
    reason = why_not_on(
        candidate, num_nodes, spec.engine, spec.placement, learns=spec.kind == "train"
    )
    reason = reason or why_engines_split(candidate, num_nodes, spec.engine)
    return None if reason is not None else estimate(spec, candidate, num_nodes, shape)
