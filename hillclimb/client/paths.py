"""Paths of the API, with names and keys quoted: they may contain any character."""

from __future__ import annotations

from urllib.parse import quote


def quoted(part: str) -> str:
    """Return one quoted part of a path; unquoted dots would be resolved as `.` and `..`."""
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")


def of_run(run_id: str, *parts: str | int) -> str:
    """Return the path of a run, or of a part of it; each part is quoted."""
    return "/".join(("/v1/runs", *(quoted(str(part)) for part in (run_id, *parts))))
