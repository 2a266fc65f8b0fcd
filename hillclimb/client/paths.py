"""Paths of the API with whatever stands in them: names and keys are what people made of them."""

from __future__ import annotations

from urllib.parse import quote


def quoted(part: str) -> str:
    """Return one part of a path; two dots alone would lead a client one part up."""
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")


def of_run(run_id: str, *parts: str | int) -> str:
    """Return the path of a run, or of something in it; each part is one, whatever it holds."""
    return "/".join(("/v1/runs", *(quoted(str(part)) for part in (run_id, *parts))))
