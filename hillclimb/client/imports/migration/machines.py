"""The section `resources` of a SkyPilot task as candidates, and workers that fit their GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hillclimb.client.imports.migration.draft import Json, SpecDraft
from hillclimb.spec.backend.clouds import CLOUDS, cloud_of

COPIED = ("accelerators", "use_spot")
DEFAULT_CLOUDS = ("lambda", "runpod", "vast")
"""The clouds of the workflow's `cloud: any`."""
_PLACED = {*COPIED, "any_of", "ordered", "cloud", "infra", "region", "disk_size", "image_id"}


def candidates_of(draft: SpecDraft, resources: Json) -> list[dict[str, Json]]:
    """Return the candidates of `resources`; remarks on what has no place."""
    if not isinstance(resources, Mapping):
        return []
    several = resources.get("any_of") or resources.get("ordered")
    parts = (
        [each for each in several if isinstance(each, Mapping)]
        if isinstance(several, list)
        else [{}]
    )
    if not any("cloud" in each or "infra" in each for each in (resources, *parts)):
        parts = [{**each, "cloud": cloud} for each in parts for cloud in DEFAULT_CLOUDS]
    for key in resources:
        if key not in _PLACED:
            draft.remark(f"resources.{key}", "no place: the estimate chooses it (hillclimb plan)")
    return [candidate for part in parts for candidate in _candidates(draft, {**resources, **part})]


def _candidates(draft: SpecDraft, part: Mapping[str, Json]) -> list[dict[str, Json]]:
    infra = str(part.get("infra") or part.get("cloud") or "").lower()
    if part.get("region") and "/" not in infra:
        infra = f"{infra}/{part['region']}"
    if cloud_of(infra) not in CLOUDS:
        draft.remark(
            "resources",
            f"{infra or 'a machine without a cloud'} is left out: the clouds"
            f" are {', '.join(CLOUDS)}",
        )
        return []
    candidate: dict[str, Json] = {"infra": infra}
    if part.get("use_spot"):
        candidate["use_spot"] = True
    if isinstance(part.get("disk_size"), int) and cloud_of(infra) != "lambda":
        candidate["disk_gb"] = part["disk_size"]
    image = part.get("image_id")
    if isinstance(image, str) and image.startswith("docker:"):
        candidate["image"] = image
    return [{**candidate, **each} for each in _accelerators(part.get("accelerators"))]


def _accelerators(value: Json) -> list[dict[str, str]]:
    """Return `H100:4`, `{H100: 4}` and lists of them as machines."""
    if isinstance(value, Mapping):
        return [{"accelerators": f"{name}:{number}"} for name, number in value.items()]
    if isinstance(value, list):
        return [each for item in value for each in _accelerators(item)]
    if not value:
        return [{}]
    name, _, number = str(value).partition(":")
    return [{"accelerators": f"{name}:{number or 1}"}]


def fit_workers(draft: SpecDraft) -> None:
    """Divide the GPUs of the smallest candidate between engines and learner.

    SkyRL's engines share GPUs with its learner, so its numbers would need twice the machine. Halves
    keep eight H100 busy for 84% of a step of 16 prompts, on paper; a quarter for engines, 42%.
    """
    backend = draft.spec["backend"].get("skypilot")
    if backend is None:
        return
    counts = [_gpus(each.get("accelerators")) for each in backend["candidates"]]
    gpus = min(counts) * int(backend.get("num_nodes", 1))
    engine: dict[str, Any] = draft.spec.setdefault("engine", {})
    placement: dict[str, Any] = draft.spec.setdefault("placement", {})
    size, engines = engine.get("tensor_parallel_size", 1), engine.get("data_parallel_size", 1)
    ranks = placement.get("learner_ranks", 1)
    if gpus < 2 or size * engines + ranks == gpus:
        return
    engines = max(1, gpus // 2 // size)
    engine["data_parallel_size"], placement["learner_ranks"] = engines, gpus - engines * size
    draft.remark(
        "generator.num_inference_engines",
        f"engines and learner have GPUs of their own: of {gpus}, {engines * size} sample"
        f" ({engines} x tensor_parallel_size {size}) and {gpus - engines * size} learn",
    )


def _gpus(accelerators: Json) -> int:
    number = str(accelerators or "").partition(":")[2]
    return int(number) if number.isdecimal() else 0
