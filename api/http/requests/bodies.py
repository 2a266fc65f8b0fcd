"""Parses bodies straight from their bytes: specs, sections, event batches."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable
from typing import TypeVar

from pydantic import ValidationError

from api.admission.campaigns.request import CampaignSpec
from api.http.problems import INVALID, INVALID_SPEC, MALFORMED, Problem
from api.runs.errors import UnsupportedSchema
from hillclimb.hardware.model.shipped import why_not_shipped
from hillclimb.protocol.events import EVENT_SCHEMA, IngestBatch, is_of_newer_schema
from hillclimb.protocol.spec_problems import SpecProblem, explain, sentence_of
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.rules.documents import repeated_key
from hillclimb.spec.run import RunSpec
from hillclimb.spec.section import Section

T = TypeVar("T", bound=Section)
MAX_MISTAKES = 50
"""Mistakes that a response lists."""


def parse_spec(body: bytes, accepted: Iterable[AcceptedPath] = ()) -> RunSpec:
    """Return the spec; raises Problem with one entry per mistake, or for invalid JSON.

    `accepted` are the paths that need no `experimental` on this installation.
    """
    _refuse_nul(body)
    try:
        spec = RunSpec.model_validate_json(body, context={"accepted": accepted})
    except ValidationError as error:
        raise _refusal(error, spec=RunSpec) from error
    _refuse_repeated(body)
    if (why := why_not_shipped(spec.model.source)) is not None:
        mistake = SpecProblem(pointer="/model/source", code="unknown_model", message=why)
        raise Problem(INVALID_SPEC, f"/model/source: {why}", [mistake])
    return spec


def parse_campaign(body: bytes) -> CampaignSpec:
    """Return the campaign; raises Problem with one entry per mistake, or for invalid JSON."""
    _refuse_nul(body)
    try:
        campaign = CampaignSpec.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, spec=CampaignSpec) from error
    _refuse_repeated(body)
    return campaign


def parse_body(model: type[T], body: bytes) -> T:
    """Return the body as a section; raises Problem with one entry per mistake, or for no JSON."""
    _refuse_nul(body)
    try:
        section = model.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, spec=None) from error
    _refuse_repeated(body)
    return section


def parse_batch(body: bytes) -> IngestBatch:
    """Return the batch; raises Problem with one entry per mistake, or for invalid JSON.

    A trainer writes numbers as numbers: true or "1" for one is a mistake; 1.0 is an integer, as in
    JSON Schema. Raises UnsupportedSchema for what a newer sender may well mean: it gives up only
    what is invalid.
    """
    try:
        try:
            return IngestBatch.model_validate_json(body, strict=True)
        except ValidationError as error:
            if not all(_is_whole(detail["input"]) for detail in error.errors(include_url=False)):
                raise
        return IngestBatch.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            _refuse_newer(json.loads(body))
        raise _refusal(error, spec=None) from error


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _refuse_newer(batch: object) -> None:
    events = batch.get("events") if isinstance(batch, dict) else None
    if isinstance(events, list) and any(map(is_of_newer_schema, events)):
        raise UnsupportedSchema(f"Its schema is newer than {EVENT_SCHEMA}, this service's.")


def _refuse_nul(body: bytes) -> None:
    if body.startswith(codecs.BOM_UTF8):
        raise Problem(MALFORMED, "The body begins with a byte order mark: send it without one.")
    if b"\x00" in body or b"\\u0000" in body:
        raise Problem(MALFORMED, "The body contains the character U+0000, which cannot be stored.")


def _refuse_repeated(body: bytes) -> None:
    """Refuse a key that is there twice: JSON's readers take the last one without a word."""
    if (key := repeated_key(body)) is not None:
        detail = f"The key {key!r} is there twice in one object: put both into one."
        raise Problem(MALFORMED, detail)


def _refusal(error: ValidationError, *, spec: type[Section] | None) -> Problem:
    """Return the problem of a document; of a `spec` the keys are told that a wrong one may mean."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return Problem(MALFORMED, f"The body is not JSON: {first['ctx']['error']}.")
    mistakes = explain(error, spec)[:MAX_MISTAKES] if spec else _plain(error)
    sentences = "; ".join(f"{m.pointer or '/'}: {m.message}" for m in mistakes[:3])
    return Problem(INVALID_SPEC if spec else INVALID, sentences, mistakes)


def _plain(error: ValidationError) -> tuple[SpecProblem, ...]:
    return tuple(
        SpecProblem(
            pointer="".join(f"/{part}" for part in detail["loc"]),
            code=detail["type"],
            message=sentence_of(detail),
        )
        for detail in error.errors(include_url=False, include_input=False)[:MAX_MISTAKES]
    )
