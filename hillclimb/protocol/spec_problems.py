"""Turns a rejected spec into sentences that say where it is wrong and what to do.

The same sentences reach a user through the API (problem+json), the CLI and the trainer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from trainer.contract.spec import RunSpec

PLANNED: frozenset[str] = frozenset(
    {
        "guards",
        "experiment",
        "secrets",
        "notify/webhook",
        "environment/modality",
        "rollout/top_p",
    }
)
"""Keys of the design that this version does not read yet (paths without a leading slash)."""

ELSEWHERE: Mapping[str, str] = {
    "cluster": "the machines of a run are under backend.skypilot",
    "resources": "the machines of a run are backend.skypilot.candidates",
    "backend/cloud": "a machine's cloud is the infra of one of backend.skypilot.candidates",
    "data/version": "a dataset's version is a part of its name in data.dataset (NAME@3)",
}
"""Keys that one would look for, and where it is instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """One thing wrong with a spec: where (JSON Pointer), which kind, and a sentence."""

    pointer: str
    code: str
    message: str


def explain(error: ValidationError) -> tuple[SpecProblem, ...]:
    """Return one problem per mistake, in the order of the document.

    pydantic leaves out items that are wrong and then counts too few of the others: not told.
    """
    details = error.errors(include_url=False)
    return tuple(_explain_one(each) for each in details if not _follows(each, details))


def _follows(detail: Mapping[str, Any], details: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it only says that wrong items were not counted."""
    loc = tuple(detail["loc"])
    return detail["type"] == "too_short" and any(
        len(each["loc"]) > len(loc) and tuple(each["loc"][: len(loc)]) == loc for each in details
    )


def _explain_one(detail: Mapping[str, Any]) -> SpecProblem:
    loc: tuple[int | str, ...] = tuple(detail["loc"])
    pointer = "".join(f"/{_escape(part)}" for part in loc)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(loc, pointer)
    return SpecProblem(pointer=pointer, code=str(detail["type"]), message=sentence_of(detail))


def sentence_of(detail: Mapping[str, Any]) -> str:
    """Return what one of pydantic's errors says, without what it puts before our own sentences."""
    return str(detail["msg"]).removeprefix("Value error, ")


def _unknown_key(loc: Sequence[int | str], pointer: str) -> SpecProblem:
    path = "/".join(str(part) for part in loc)
    if path in PLANNED:
        return SpecProblem(
            pointer=pointer,
            code="not_available",
            message=f"{path} is not available in this version",
        )
    if path in ELSEWHERE:
        message = f"unknown key {path!r}: {ELSEWHERE[path]}"
        return SpecProblem(pointer=pointer, code="unknown_key", message=message)
    close = difflib.get_close_matches(str(loc[-1]), _keys_beside(loc), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return SpecProblem(pointer=pointer, code="unknown_key", message=f"unknown key {path!r}{hint}")


def _keys_beside(loc: Sequence[int | str]) -> Iterable[str]:
    """Return the keys allowed where the unknown one stands."""
    model: type[BaseModel] = RunSpec
    parts = iter(loc[:-1])
    for part in parts:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        sections = _sections(field.annotation) if field else ()
        if field is None or len(sections) != 1:
            return ()
        model = sections[0]
        if get_origin(field.annotation) in (dict, Mapping):
            next(parts, None)  # the user's own name of one of several
    return model.model_fields


def _sections(annotation: object) -> tuple[type[BaseModel], ...]:
    """Return the sections that a key may hold: `X`, `X | None`, `tuple[X, ...]`, `dict[str, X]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(found for part in get_args(annotation) for found in _sections(part))


def _escape(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
