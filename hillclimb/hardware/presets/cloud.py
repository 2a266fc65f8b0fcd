"""Changes the cloud of a spec and keeps its machines: `--preset NAME --cloud lambda`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hillclimb.hardware.features import FEATURES
from hillclimb.spec.backend.clouds import CLOUDS, OWN_NETWORKS, cloud_of

ANY = "any"
"""Every cloud that the spec lists."""
RENTED_CLOUDS = (ANY, *(cloud for cloud in CLOUDS if cloud not in OWN_NETWORKS))
"""Clouds by one word; clusters of one's own need a name and are written into the spec."""


class CloudRefused(Exception):
    """The spec rents no machines, or the cloud is unknown; the message says what would do."""


def on_cloud(spec: Mapping[str, Any], cloud: str) -> dict[str, Any]:
    """Return the spec with candidates on one cloud only; `any` keeps those it has.

    The spec's own candidates on the cloud stay as they are. Without any, the others' machines are
    requested there, without region, image, and what the cloud does not offer.

    Raises:
        CloudRefused: the cloud is unknown, or the spec has no `backend.skypilot.candidates`.
    """
    if cloud not in RENTED_CLOUDS:
        raise CloudRefused(
            f"there is no cloud {cloud!r} to rent from: take one of {', '.join(RENTED_CLOUDS)}"
        )
    backend = spec.get("backend")
    skypilot = backend.get("skypilot") if isinstance(backend, Mapping) else None
    candidates = skypilot.get("candidates") if isinstance(skypilot, Mapping) else None
    if not isinstance(candidates, list) or not all(isinstance(c, Mapping) for c in candidates):
        raise CloudRefused(
            "a cloud replaces backend.skypilot.candidates, and this spec has none: take a preset"
            " that rents machines (hillclimb presets), or leave the cloud out"
        )
    if cloud == ANY:
        return dict(spec)
    own = [each for each in candidates if cloud_of(str(each.get("infra"))) == cloud]
    chosen = own or _distinct([_moved(each, cloud) for each in candidates])
    moved = {**(skypilot or {}), "candidates": chosen}
    return {**spec, "backend": {**(backend or {}), "skypilot": moved}}


def _moved(candidate: Mapping[str, Any], cloud: str) -> dict[str, Any]:
    features = FEATURES[cloud]
    left_out = {"image", *(() if features.custom_disk else ("disk_gb",))}
    left_out |= set() if features.spot else {"use_spot"}
    machine = {key: value for key, value in candidate.items() if key not in left_out}
    return {**machine, "infra": cloud}


def _distinct(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for n, each in enumerate(candidates) if each not in candidates[:n]]
