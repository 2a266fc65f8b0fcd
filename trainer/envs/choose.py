"""Choice of the environment provider that a spec names."""

from __future__ import annotations

from hillclimb.environment.base import EnvProvider
from hillclimb.minifleet.faults import Faults
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.protocol.rundir import AttemptDir
from hillclimb.spec.environment.environment import FaultSpec
from hillclimb.spec.run import RunSpec
from trainer.envs.minifleet import MinifleetProvider

_NONE = FaultSpec()


def choose_provider(
    spec: RunSpec, run_tag: str = "hillclimb", *, worker: int = 0, num_workers: int = 1
) -> EnvProvider:
    """Return the provider of a spec's environments.

    `run_tag` names the attempt to platforms that hold something for it; `worker` is the number of
    the rollout worker that asks, one of `num_workers`, each of which has a provider.

    Raises:
        SpecError: it cannot be made on this machine.
    """
    if spec.environment.provider == "fleet":
        with gc_paused_import():
            # Brings MCP's client along, which no other provider needs.
            from trainer.envs.fleet.choice import fleet_provider  # noqa: PLC0415
        return fleet_provider(spec, run_tag, worker=worker, num_workers=num_workers)
    if spec.environment.provider == "openenv":
        with gc_paused_import():
            from trainer.envs.openenv.provider import OpenEnvProvider  # noqa: PLC0415 - as above
        servers = spec.environment.openenv
        return OpenEnvProvider({key: servers[key] for key in spec.data.env_keys})
    return _minifleet(spec)


async def check_provider(spec: RunSpec, own: AttemptDir | None = None) -> None:
    """Check that the environments' platform responds, before anything is loaded for it.

    What the run's earlier attempts than `own` left on it is deleted.

    Raises:
        SpecError: it refuses us, or must not be asked.
        EnvironmentOutage: it does not answer.
    """
    if spec.environment.provider == "fleet":
        from trainer.envs.fleet.sweep import check_platform  # noqa: PLC0415 - as above

        await check_platform(spec, own=own)
    if spec.environment.provider == "openenv":
        from trainer.envs.openenv.provider import check_servers  # noqa: PLC0415 - as above

        await check_servers(spec.environment.openenv)


def _minifleet(spec: RunSpec) -> MinifleetProvider:
    """Return the provider of the miniature apps, with the spec's faults."""
    environment = spec.environment
    overrides = {
        key: environment.overrides[key].faults if key in environment.overrides else None
        for key in spec.data.env_keys
    }
    faults = {key: own or environment.faults for key, own in overrides.items()}
    return MinifleetProvider(
        env_keys=spec.data.env_keys,
        faults={key: Faults(**each.model_dump()) for key, each in faults.items() if each != _NONE},
        seed=spec.schedule.seed,
    )
