"""Rollout requests of training steps."""

from __future__ import annotations

from hillclimb.spec.run import RunSpec
from trainer.rollouts.limits.limits import training_temperature
from trainer.rollouts.request import RolloutRequest


def training_temperatures(spec: RunSpec) -> dict[str, float]:
    """Return the sampling temperature of training rollouts by environment key."""
    return {
        key: training_temperature(key, spec.environment, spec.rollout) for key in spec.data.env_keys
    }


def training_request(spec: RunSpec, step: int) -> RolloutRequest:
    """Return the request for the training rollouts of a step."""
    return RolloutRequest(
        step=step,
        split="train",
        decoding="train",
        n_samples_per_prompt=spec.rollout.n_samples_per_prompt,
        temperatures=training_temperatures(spec),
        returns_routes=spec.learner.routing_replay,
    )
