"""The waves that training steps learn from."""

from __future__ import annotations

from trainer.contract.spec import RunSpec
from trainer.rollouts.limits import training_temperature
from trainer.rollouts.wave import Wave


def training_temperatures(spec: RunSpec) -> dict[str, float]:
    """Return the sampling temperature of training rollouts by environment key."""
    return {
        key: training_temperature(key, spec.environment, spec.rollout) for key in spec.data.env_keys
    }


def training_wave(spec: RunSpec, step: int) -> Wave:
    """Return the wave of training rollouts of a step."""
    return Wave(
        step=step,
        split="train",
        decoding="train",
        n_samples_per_prompt=spec.rollout.n_samples_per_prompt,
        temperatures=training_temperatures(spec),
    )
