"""The secrets that a run's trainer reads from its environment, as its spec has it."""

from __future__ import annotations

from trainer.contract.spec import RunSpec

FLEET_KEY, WANDB_KEY = "FLEET_API_KEY", "WANDB_API_KEY"


def wanted_secrets(spec: RunSpec) -> dict[str, str]:
    """Return the variables that have to be set, each with what in the spec asks for it."""
    environment, teacher = spec.environment, spec.validation.teacher
    wanted: dict[str, str] = {}
    if environment.provider == "fleet":
        wanted[FLEET_KEY] = "environment.provider fleet"
    if environment.provider == "openenv":
        for name, server in environment.openenv.items():
            wanted |= dict.fromkeys(server.headers.values(), f"environment.openenv.{name}.headers")
    if spec.kind == "validate" and teacher is not None and teacher.api_key_env is not None:
        wanted[teacher.api_key_env] = "validation.teacher.api_key_env"
    if spec.tracking.wandb.mode == "online":
        wanted[WANDB_KEY] = "tracking.wandb.mode online"
    return wanted
