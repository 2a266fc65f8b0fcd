"""`/v1/presets`: whole specs to start from."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from api.clusters.errors import PresetNotFound
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader
from api.tables.identity import NotAllowed, NotAuthenticated
from hillclimb.hardware.presets.presets import NoSuchPreset, Preset, preset, presets

router = APIRouter(
    prefix="/v1/presets",
    tags=["presets"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed])},
)


class PresetPayload(BaseModel):
    """A spec by name."""

    model_config = ConfigDict(frozen=True)

    object: Literal["preset"] = "preset"
    name: str
    about: str
    spec: dict[str, Any]
    """The body for `POST /v1/runs`, as it is written: without defaults."""
    text: str
    """The same as YAML, with its comments."""


class PresetList(BaseModel):
    """All presets, by name."""

    model_config = ConfigDict(frozen=True)

    object: Literal["list"] = "list"
    data: list[PresetPayload]


@router.get("", operation_id="list_presets", summary="List specs to start from")
def list_presets(caller: Reader) -> PresetList:
    """Return every preset."""
    del caller
    return PresetList(data=[_payload(each) for each in presets().values()])


@router.get(
    "/{name}",
    operation_id="get_preset",
    summary="Get a spec to start from",
    responses={**documented(KINDS[PresetNotFound])},
)
def get_preset(caller: Reader, name: str) -> PresetPayload:
    """Return one preset."""
    del caller
    try:
        return _payload(preset(name))
    except NoSuchPreset as unknown:
        raise PresetNotFound(f"{str(unknown)[:1].upper()}{str(unknown)[1:]}.") from unknown


def _payload(each: Preset) -> PresetPayload:
    return PresetPayload(name=each.name, about=each.about, spec=each.spec, text=each.text)
