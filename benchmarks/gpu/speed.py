"""Block C: tokens per second and memory of the learner, and where the time goes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.setting import (
    GIB,
    Cases,
    Check,
    Figures,
    Setting,
    clear,
    peak_gib,
    with_layers,
    yarn,
)
from hillclimb.hardware.memory.arithmetic import largest
from hillclimb.hardware.memory.learner import CONTEXT_BYTES, LearnerMemory
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from trainer.learners.rank import LearnerRank
from trainer.learners.recurrent.rule import why_no_kernels

QUARTER = 9
"""Layers of 36: all weights of a quarter, with what training keeps of them, fit on one GPU."""
FIGURES = ("tokens_per_second", "mfu", "peak_memory_gib", "grad_norm")
COSTLIEST = 40


def lengths(setting: Setting) -> tuple[int, ...]:
    """Packed tokens of a pass."""
    return tuple(setting.size(each, each // 256) for each in (8192, 32_768, 65_536))


def all_weights(setting: Setting) -> Cases:
    """Every weight of a quarter of the layers: speed, and memory against the estimate.

    A step has sequences of 64k tokens together, however long each is.
    """
    for tokens in lengths(setting):
        families = max(lengths(setting)) // tokens
        yield str(tokens), _quarter(setting, setting.learner(), tokens, families=families)


def recomputing(setting: Setting) -> Cases:
    """Families of 8k, two in a pass, by what a layer keeps for its backward pass."""
    tokens = lengths(setting)[0]
    for keep in ("matmuls", "none", "all", "attention"):
        changed: dict[str, Any] = {"activation_checkpointing": keep != "all"}
        if keep != "all":
            changed["keep_activations"] = keep
        spec = setting.learner().model_copy(update=changed)
        yield keep, _quarter(setting, spec, tokens, families=8, in_pass=2)


def whole_step(setting: Setting) -> Cases:
    """Families of 8k as in a step of 64 x 4 rollouts on eight ranks: one update of many passes."""
    tokens = lengths(setting)[0]
    for keep, in_pass in (("matmuls", 2), ("attention", 4)):
        changed = {"activation_checkpointing": True, "keep_activations": keep}
        spec = setting.learner().model_copy(update=changed)
        yield f"{keep}_{in_pass}", _quarter(setting, spec, tokens, families=32, in_pass=in_pass)


def _quarter(
    setting: Setting, spec: LearnerSpec, tokens: int, *, families: int, in_pass: int = 1
) -> Figures:
    """Measure a rank of its own, which leaves nothing in memory."""
    try:
        spec = spec.model_copy(update={"max_micro_tokens": tokens * in_pass})
        return _measured(
            setting,
            setting.rank(QUARTER, spec),
            spec,
            tokens,
            layers=QUARTER,
            families=families,
            in_pass=in_pass,
        )
    finally:
        clear(setting.device)


def costliest(setting: Setting) -> Cases:
    """The kernels that take the most time of a step over four families of 8k in one pass."""
    spec = setting.learner().model_copy(update={"max_micro_tokens": lengths(setting)[1]})
    rank, batch = setting.rank(QUARTER, spec), setting.batch(lengths(setting)[0], families=4)
    rank.step(batch)
    activities = [ProfilerActivity.CPU]
    if setting.device != "cpu":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiled:
        rank.step(batch)
    on_gpu = setting.device != "cpu"
    key = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    rows = sorted(profiled.key_averages(), key=lambda each: -getattr(each, key))
    if on_gpu:
        # A kernel is listed beside the operation that launched it.
        rows = [each for each in rows if each.device_type.name == "CUDA"]
    total = sum(getattr(each, key) for each in rows)
    yield (
        "step",
        {
            "milliseconds": total / 1000,
            "shares": {
                row.key[:80]: round(getattr(row, key) / total, 4) for row in rows[:COSTLIEST]
            },
        },
    )


def compiled(setting: Setting) -> Cases:
    """The same with each layer compiled, for lengths that change from pass to pass."""
    if setting.rehearses:
        yield "layers", {"skipped": "a compiler takes longer than a rehearsal"}
        return
    rank, spec = setting.rank(QUARTER), setting.learner()
    for layer in rank._models.policy.causal_lm.model.layers:  # noqa: SLF001 - of this rank alone
        layer.compile(dynamic=True)
    started = time.perf_counter()
    rank.step(setting.batch(lengths(setting)[0], seed=2))
    yield "first_step", {"seconds": time.perf_counter() - started}
    for tokens in lengths(setting)[:2]:
        yield str(tokens), _measured(setting, rank, spec, tokens, layers=QUARTER)


def adapters(setting: Setting) -> Cases:
    """Adapters on the whole model at 65k, by YaRN."""
    spec = setting.learner(adapters=True)
    layers = setting.size(36, 2)
    rope = yarn(setting.size(32_768, 64))
    rank = setting.rank(layers, spec, rope=rope)
    tokens = lengths(setting)[-1]
    yield str(tokens), _measured(setting, rank, spec, tokens, layers=layers)


def other_families(setting: Setting) -> Cases:
    """A few layers with experts, and a few with linear attention: speed, and the estimate."""
    for name, layers in (("Qwen3-30B-A3B", 3), ("Qwen3.5-9B", 4)):
        other = replace(setting, model_name=name)
        if other.shape.linear and (why := why_no_kernels(torch.device(setting.device))):
            yield name, {"skipped": why}
            continue
        rank, spec = other.rank(layers), other.learner()
        for tokens in lengths(setting)[:2]:
            yield f"{name}_{tokens}", _measured(other, rank, spec, tokens, layers=layers)
        del rank
        clear(setting.device)


def saving_memory(setting: Setting) -> Cases:
    """A quarter of the layers at 32k: moments in one byte, and results that are kept."""
    tokens = lengths(setting)[1]
    for changed in ({"optimizer_moments": "int8"}, {"keep_activations": "attention"}):
        spec = setting.learner().model_copy(update=changed)
        rank = setting.rank(QUARTER, spec)
        (name,) = changed.values()
        yield name, _measured(setting, rank, spec, tokens, layers=QUARTER)
        del rank
        clear(setting.device)


def offloaded(setting: Setting) -> Cases:
    """Weights of record and optimizer in the machine's memory: an update by 1 and 16 threads."""
    spec, layers = setting.learner(offload=True), setting.size(4, 1)
    rank = setting.rank(layers, spec)
    tokens = lengths(setting)[0]
    before = torch.get_num_threads()
    try:
        for threads in (1, 16):
            torch.set_num_threads(threads)
            figures = _measured(setting, rank, spec, tokens, layers=layers)
            started = time.perf_counter()
            rank._optimizer.step()  # noqa: SLF001 - it alone, on the last gradient
            seconds = time.perf_counter() - started
            per_parameter = seconds / rank.num_parameters * 1e9
            yield f"{threads}_threads", figures | {"ns_per_parameter": per_parameter}
    finally:
        torch.set_num_threads(before)


def _measured(  # noqa: PLR0913 - what is measured, and how
    setting: Setting,
    rank: LearnerRank,
    spec: LearnerSpec,
    tokens: int,
    *,
    layers: int,
    families: int = 1,
    in_pass: int = 1,
) -> Figures:
    """Return the second step's figures and the estimate's, or that the memory did not suffice."""
    estimated = _estimated(setting, spec, tokens * in_pass, layers)
    try:
        rank.step(setting.batch(tokens, families=families))
        clear(setting.device)
        metrics: dict[str, Any] = rank.step(setting.batch(tokens, seed=families, families=families))
    except torch.OutOfMemoryError:
        clear(setting.device)
        return {"out_of_memory": True, "estimated_gib": estimated}
    figures = {name: metrics.get(f"policy/{name}") for name in FIGURES}
    peak = peak_gib(setting.device)
    figures |= {"estimated_gib": estimated, "peak_gib": peak}
    if peak is not None:
        figures["is_estimate_enough"] = peak <= estimated
    return figures


def _estimated(setting: Setting, spec: LearnerSpec, tokens: int, layers: int) -> float:
    """Return the estimate of tensors alone (GiB): torch does not count CUDA's context."""
    memory = LearnerMemory(
        shape=with_layers(setting.shape, layers),
        learner=spec.model_copy(update={"max_micro_tokens": tokens}),
        algorithm=AlgorithmSpec(),
        num_ranks=1,
        max_sequence_length=tokens,
        by_chunks=False,
    )
    return round((largest(memory.phases()).num_bytes - CONTEXT_BYTES) / GIB, 2)


CHECKS: dict[str, Check] = {
    "recomputing": recomputing,
    "whole_step": whole_step,
    "costliest": costliest,
    "all_weights": all_weights,
    "other_families": other_families,
    "saving_memory": saving_memory,
    "adapters": adapters,
    "offloaded": offloaded,
    "compiled": compiled,
}
