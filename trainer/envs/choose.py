"""Which provider serves the environments that a spec names."""

from __future__ import annotations

from trainer.contract.sections import FaultSpec
from trainer.contract.spec import RunSpec
from trainer.envs.minifleet.faults import Faults
from trainer.envs.minifleet.provider import MinifleetProvider

_NONE = FaultSpec()


def choose_provider(spec: RunSpec) -> MinifleetProvider:
    """Make the provider of a spec's environments, with the faults asked for."""
    environment = spec.environment
    chosen = {
        key: environment.overrides[key].faults if key in environment.overrides else None
        for key in spec.data.env_keys
    }
    faults = {key: own or environment.faults for key, own in chosen.items()}
    return MinifleetProvider(
        env_keys=spec.data.env_keys,
        faults={key: Faults(**each.model_dump()) for key, each in faults.items() if each != _NONE},
        seed=spec.schedule.seed,
    )
