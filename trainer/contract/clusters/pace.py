"""How long a training step may take: a range by arithmetic, never a promise.

Nothing of it was measured on a GPU. The low end takes rollouts of a quarter of the allowed length
and good use of the hardware, the high end rollouts that all reach the limit and poor use of it.
What environments take of their own comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.contract.clusters.engine_memory import EngineMemory
from trainer.contract.clusters.gpus import Gpu
from trainer.contract.clusters.learner_memory import LearnerMemory
from trainer.contract.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds, from the low to the high end."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def longest(self, other: Range) -> Range:
        """The range of two things that go on at once."""
        return Range(max(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """One end of the range."""

    length_share: float
    """Of `rollout.max_sequence_length`, and of `environment.max_turns`, that rollouts reach."""
    drawn_share: float
    """Of a rollout's tokens that the policy draws; the rest is read."""
    learner_use: float
    """Of the GPU's bfloat16 peak, in forward and backward pass."""
    prompt_use: float
    """The same, in reading prompts."""
    bandwidth_use: float
    """Of the GPU's memory bandwidth, in drawing tokens."""


LOW = Assumed(
    length_share=0.25, drawn_share=0.2, learner_use=0.45, prompt_use=0.5, bandwidth_use=0.7
)
HIGH = Assumed(
    length_share=1.0, drawn_share=0.5, learner_use=0.2, prompt_use=0.25, bandwidth_use=0.35
)


def step_seconds(spec: RunSpec, learner: LearnerMemory, engine: EngineMemory, gpu: Gpu) -> Range:
    """Seconds of one training step: rollouts, then the update; at once where rollouts run ahead."""
    rolling = Range(*(_rolling(spec, engine, gpu, end) for end in (LOW, HIGH)))
    learning = Range(*(_learning(spec, learner, gpu, end) for end in (LOW, HIGH)))
    if spec.schedule.max_staleness_steps:
        return rolling.longest(learning)
    return rolling + learning


def _tokens(spec: RunSpec, end: Assumed) -> tuple[float, float]:
    """Rollouts of a step, and tokens of each."""
    rollouts = spec.schedule.train_batch_size * spec.rollout.n_samples_per_prompt
    return float(rollouts), end.length_share * spec.rollout.max_sequence_length


def _learning(spec: RunSpec, learner: LearnerMemory, gpu: Gpu, end: Assumed) -> float:
    """6 P per token and 12 L W per pair of tokens; a forward pass more where it is computed again.

    Source: Chowdhery et al. 2022 (arXiv:2204.02311, appendix B), as `trainer.learners.throughput`.
    """
    rollouts, length = _tokens(spec, end)
    shape = learner.shape
    multiplies = shape.num_parameters - (0 if shape.is_tied else shape.embedding_parameters)
    # Forward, gradient of the inputs, gradient of the weights; frozen weights have none.
    passes = 3.0 if spec.learner.lora is None else 2.0
    passes += 1.0 if spec.learner.activation_checkpointing else 0.0
    passes += 1.0 if spec.algorithm.use_kl_loss else 0.0
    passes += 1.0 if spec.algorithm.off_policy_correction.is_on else 0.0
    pairs = length * length / 2
    if spec.algorithm.step_wise:
        turns = _turns(spec, end)
        # Turn i is a sequence of its own, of i / turns of the length: sums of i and of its squares.
        pairs *= (turns + 1) * (2 * turns + 1) / (6 * turns)
        length *= (turns + 1) / 2
    forward = 2.0 * multiplies * length + 4.0 * shape.num_layers * shape.query_width * pairs
    ranks = learner.num_ranks
    return rollouts * passes * forward / (ranks * gpu.bfloat16_flops * end.learner_use)


def _turns(spec: RunSpec, end: Assumed) -> float:
    """Turns of a rollout, at least one."""
    overrides = spec.environment.overrides.values()
    most = max(spec.environment.max_turns, *(each.max_turns or 0 for each in overrides), 1)
    return max(1.0, end.length_share * most)


def _rolling(spec: RunSpec, engine: EngineMemory, gpu: Gpu, end: Assumed) -> float:
    """Reading is bound by arithmetic; drawing reads all weights and caches for every token."""
    rollouts, length = _tokens(spec, end)
    per_engine = rollouts / spec.engine.data_parallel_size
    size, shape, parts = engine.dtype_bytes, engine.shape, spec.engine.tensor_parallel_size
    read = (1 - end.drawn_share) * length
    flops = 2.0 * shape.num_parameters * read
    flops += 4.0 * shape.num_layers * shape.query_width * read * length / 2
    reading = per_engine * flops / (parts * gpu.bfloat16_flops * end.prompt_use)
    held = max(engine.full_sequences, 1.0) * engine.max_sequence_length / length
    at_once = max(1.0, min(per_engine, held, float(engine.max_concurrent)))
    per_token = size * shape.num_parameters / parts
    per_token += at_once * engine.kv_bytes_per_token * length / 2
    draws = per_engine * end.drawn_share * length / at_once
    return reading + draws * per_token / (gpu.bytes_per_second * end.bandwidth_use)
