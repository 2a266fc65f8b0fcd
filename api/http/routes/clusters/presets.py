"""`/v1/presets`: complete specs to start from."""

from __future__ import annotations

from typing import Annotated

import yaml
from fastapi import APIRouter, Query
from pydantic import Field

from api.clusters.errors import PresetHasNoCloud, PresetNotFound
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.hardware.presets.cloud import RENTED_CLOUDS, CloudRefused, on_cloud
from hillclimb.hardware.presets.presets import NoSuchPreset, Preset, preset, presets
from hillclimb.protocol.payloads.projects.service import PresetList, PresetPayload

CloudName = Annotated[str, Field(max_length=40, json_schema_extra={"enum": list(RENTED_CLOUDS)})]
router = APIRouter(
    prefix="/v1/presets",
    tags=["presets"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed])},
)


@router.get("", operation_id="list_presets", summary="List presets")
def list_presets(caller: Reader) -> PresetList:
    """Return every preset."""
    del caller
    return PresetList(data=[_payload(each) for each in presets().values()])


@router.get(
    "/{name}",
    operation_id="get_preset",
    summary="Get a preset",
    responses={**documented(KINDS[PresetNotFound], KINDS[PresetHasNoCloud])},
)
def get_preset(
    caller: Reader,
    name: str,
    cloud: Annotated[
        Annotated[str, Field(max_length=40, json_schema_extra={"enum": list(RENTED_CLOUDS)})]
        | None,
        Query(description="Rent its machines from this cloud alone: " + ", ".join(RENTED_CLOUDS)),
    ] = None,
) -> PresetPayload:
    """Return a preset by name, or by the old name of its task file."""
    del caller
    try:
        payload = _payload(preset(name))
        return payload if cloud is None else _on_cloud(payload, cloud)
    except NoSuchPreset as unknown:
        raise PresetNotFound(f"{str(unknown)[:1].upper()}{str(unknown)[1:]}.") from unknown
    except CloudRefused as refused:
        raise PresetHasNoCloud(f"{str(refused)[:1].upper()}{str(refused)[1:]}.") from refused


def _on_cloud(payload: PresetPayload, cloud: str) -> PresetPayload:
    """Return the preset on a cloud; the text is made anew, without the preset's comments."""
    spec = on_cloud(payload.spec, cloud)
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)
    return payload.model_copy(update={"spec": spec, "text": text})


def _payload(each: Preset) -> PresetPayload:
    return PresetPayload(
        name=each.name, about=each.about, aliases=each.aliases, spec=each.spec, text=each.text
    )
