"""`/v1/presets`: complete specs to start from."""

from __future__ import annotations

from fastapi import APIRouter

from api.clusters.errors import PresetNotFound
from api.http.problems import KINDS, documented
from api.http.requests.context import Reader
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.hardware.presets.presets import NoSuchPreset, Preset, preset, presets
from hillclimb.protocol.payloads.projects.service import PresetList, PresetPayload

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
    responses={**documented(KINDS[PresetNotFound])},
)
def get_preset(caller: Reader, name: str) -> PresetPayload:
    """Return a preset by name."""
    del caller
    try:
        return _payload(preset(name))
    except NoSuchPreset as unknown:
        raise PresetNotFound(f"{str(unknown)[:1].upper()}{str(unknown)[1:]}.") from unknown


def _payload(each: Preset) -> PresetPayload:
    return PresetPayload(name=each.name, about=each.about, spec=each.spec, text=each.text)
