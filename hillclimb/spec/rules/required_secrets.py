"""Secrets that a run's trainer reads from its environment, according to its spec."""

from __future__ import annotations

from hillclimb.spec.sections import RunSections

FLEET_KEY, WANDB_KEY = "FLEET_API_KEY", "WANDB_API_KEY"


def required_secrets(spec: RunSections) -> dict[str, str]:
    """Return the required variables, each with the setting that requires it."""
    environment, teacher = spec.environment, spec.validation.teacher
    secrets: dict[str, str] = {}
    if environment.provider == "fleet":
        secrets[FLEET_KEY] = "environment.provider fleet"
    if environment.provider == "openenv":
        for name, server in environment.openenv.items():
            secrets |= dict.fromkeys(server.headers.values(), f"environment.openenv.{name}.headers")
    if spec.kind == "validate" and teacher is not None and teacher.api_key_env is not None:
        secrets[teacher.api_key_env] = "validation.teacher.api_key_env"
    if spec.tracking.wandb.mode == "online":
        secrets[WANDB_KEY] = "tracking.wandb.mode online"
    return secrets
