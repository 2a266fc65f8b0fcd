"""`/v1/schemas`: JSON Schemas for editors and other languages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from hillclimb.spec.run import json_schema

router = APIRouter(prefix="/v1/schemas", tags=["schemas"])


@router.get("/run-spec", operation_id="run_spec_schema", summary="JSON Schema of a run spec")
def run_spec_schema() -> dict[str, Any]:
    """Return the schema (JSON Schema 2020-12); requires no key."""
    return json_schema()
