"""Memory of routes, the experts that computed each token, which `learner.routing_replay` keeps."""

from __future__ import annotations

from hillclimb.hardware.memory.arithmetic import GIB, gib
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.run import RunSpec

_BYTE = 256
"""Experts that one byte can number."""


def routes_bytes(spec: RunSpec, shape: ModelShape) -> int:
    """Return the most memory of the routes of all rollouts that wait for their update.

    A byte (two above 256 experts) per layer and expert of each token, of the rollouts of a step and
    of those drawn ahead of it, all of full length.
    """
    experts = shape.experts
    if experts is None:
        return 0
    each = shape.num_layers * experts.per_token * (1 if experts.num <= _BYTE else 2)
    schedule, rollout = spec.schedule, spec.rollout
    num_prompts = schedule.train_batch_size * (1 + schedule.max_staleness_steps)
    num_tokens = num_prompts * rollout.n_samples_per_prompt * rollout.max_sequence_length
    return num_tokens * each


def why_not_replayed(spec: RunSpec, shape: ModelShape) -> str | None:
    """Return why `learner.routing_replay` cannot be; None if it can, or is not set."""
    if not spec.learner.routing_replay or spec.kind != "train":
        return None
    if shape.experts is None:
        return "learner.routing_replay needs a model with experts, which this is not: leave it out"
    needed, limit = routes_bytes(spec, shape), spec.learner.routing_replay_gib
    if needed > limit * GIB:
        return (
            f"learner.routing_replay could take {gib(needed)} for the experts of all tokens of"
            f" {spec.rollout.max_sequence_length} tokens each, more than"
            f" learner.routing_replay_gib ({limit:g}): raise that, or lower"
            " schedule.train_batch_size, rollout.n_samples_per_prompt or"
            " rollout.max_sequence_length"
        )
    return None
