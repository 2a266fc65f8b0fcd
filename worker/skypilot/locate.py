"""Opens the cloud port that `HILLCLIMB_CLOUDS` names."""

from __future__ import annotations

from importlib import import_module

from worker.skypilot.port import Clouds

SKYPILOT = "worker.skypilot.skypilot:make_clouds"


class CloudsMisconfigured(Exception):
    """HILLCLIMB_CLOUDS names no importable factory; the message is a sentence."""


def open_clouds(name: str, prefix: str) -> Clouds:
    """Return the port that `HILLCLIMB_CLOUDS` names, for clusters whose names begin with `prefix`.

    Raises CloudsMisconfigured.
    """
    module, _, factory = (SKYPILOT if name == "skypilot" else name).partition(":")
    try:
        clouds: Clouds = getattr(import_module(module), factory)(prefix)
    except (ImportError, AttributeError, ValueError) as error:
        raise CloudsMisconfigured(
            f"HILLCLIMB_CLOUDS={name}: {error}; set it to skypilot, or to PACKAGE.MODULE:FACTORY of"
            " an importable factory (called with the prefix of our clusters' names)"
        ) from error
    return clouds
