"""Finding who rents clusters, by name."""

from __future__ import annotations

from importlib import import_module

from worker.clusters.base import Clouds

SKYPILOT = "worker.clusters.skypilot:make_clouds"


class CloudsMisconfigured(Exception):
    """HILLCLIMB_CLOUDS does not lead to anything; the message is a sentence."""


def open_clouds(name: str, prefix: str) -> Clouds:
    """Return the port that `HILLCLIMB_CLOUDS` names, for clusters whose names begin with `prefix`.

    Raises CloudsMisconfigured.
    """
    module, _, factory = (SKYPILOT if name == "skypilot" else name).partition(":")
    try:
        clouds: Clouds = getattr(import_module(module), factory)(prefix)
    except (ImportError, AttributeError, ValueError) as error:
        raise CloudsMisconfigured(
            f"HILLCLIMB_CLOUDS={name}: {error}; write skypilot, or PACKAGE.MODULE:FACTORY of what"
            " can be imported here (the factory gets the prefix of our clusters' names)"
        ) from error
    return clouds
