"""Turns validation errors of a spec into problems: a pointer, a code and a sentence with a remedy.

The API (problem+json), the CLI and the trainer report the same sentences.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from hillclimb.spec.rules.old_names import new_place
from hillclimb.spec.rules.written_forms import BOUNDS, VALUE_FORMS, written_form
from hillclimb.spec.run import RunSpec

MAX_LISTED = 12
"""Keys that a refusal lists where none is similar to the unknown one."""

PLANNED: frozenset[str] = frozenset(
    {
        "rollout/top_p",
    }
)
"""Planned keys that this version does not read yet (paths without a leading slash)."""

ELSEWHERE: Mapping[str, str] = {
    "cluster": "the machines of a run are under backend.skypilot",
    "resources": "the machines of a run are backend.skypilot.candidates",
    "backend/cloud": "a machine's cloud is the infra of one of backend.skypilot.candidates",
    "experiment": "an experiment is an object of its own, to which runs are added (hillclimb"
    " experiment, docs/experiments.md)",
    "notify/webhook": "webhooks belong to the project, not to a run (hillclimb webhooks,"
    " docs/webhooks.md)",
    "data/version": "a dataset's version is a part of its name in data.dataset (NAME@3)",
}
"""Keys that users may expect, each with a sentence about the actual key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """A mistake in a spec: its JSON Pointer, a code and a sentence."""

    pointer: str
    code: str
    message: str


def explain(error: ValidationError, root: type[BaseModel] = RunSpec) -> tuple[SpecProblem, ...]:
    """Return one problem per mistake in a document of `root`, in the order of the document.

    pydantic drops invalid items and then reports too few of the others, which is left out.
    """
    details = error.errors(include_url=False)
    return tuple(_explain_one(detail, root) for detail in details if not _follows(detail, details))


def _follows(detail: Mapping[str, Any], details: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether an error is only a consequence of invalid items."""
    loc = tuple(detail["loc"])
    return detail["type"] == "too_short" and any(
        len(other["loc"]) > len(loc) and tuple(other["loc"][: len(loc)]) == loc for other in details
    )


def _explain_one(detail: Mapping[str, Any], root: type[BaseModel]) -> SpecProblem:
    loc: tuple[int | str, ...] = tuple(detail["loc"])
    pointer = "".join(f"/{_escape(part)}" for part in loc)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(loc, pointer, detail.get("input"), root)
    return SpecProblem(pointer=pointer, code=str(detail["type"]), message=sentence_of(detail))


def sentence_of(detail: Mapping[str, Any]) -> str:
    """Return the message of a pydantic error, without its prefix to our own sentences."""
    if detail["type"] == "string_pattern_mismatch":
        form = written_form(detail["ctx"]["pattern"])
    elif (bound := BOUNDS.get(detail["type"])) is not None:
        limits = detail["ctx"].items()
        form = bound.format_map({k: f"{v:g}" if isinstance(v, float) else v for k, v in limits})
    else:
        form = VALUE_FORMS.get(detail["type"])
    if form is not None:
        start = f"{detail['input']!r:.60} cannot be used: " if "input" in detail else ""
        return f"{start}write {form}"
    return str(detail["msg"]).removeprefix("Value error, ")


def _unknown_key(
    loc: Sequence[int | str],
    pointer: str,
    value: Any,  # noqa: ANN401 - any JSON
    root: type[BaseModel],
) -> SpecProblem:
    path = "/".join(str(part) for part in loc)
    if path in PLANNED:
        return SpecProblem(
            pointer=pointer,
            code="not_available",
            message=f"{path} is not available in this version",
        )
    place = ELSEWHERE.get(path) or new_place(tuple(map(str, loc)), value)
    if place is not None:
        message = f"unknown key {path!r}: {place}"
        return SpecProblem(pointer=pointer, code="unknown_key", message=message)
    close = difflib.get_close_matches(str(loc[-1]), _keys_beside(loc, root), n=1)
    known = list(_keys_beside(loc, root))
    all_keys = f"; there are {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else ""
    hint = f"; did you mean {close[0]!r}?" if close else all_keys
    return SpecProblem(pointer=pointer, code="unknown_key", message=f"unknown key {path!r}{hint}")


def _keys_beside(loc: Sequence[int | str], root: type[BaseModel]) -> Iterable[str]:
    """Return the keys allowed beside the unknown one."""
    model = root
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
            next(parts, None)  # a key of the mapping, chosen by the user
    return model.model_fields


def _sections(annotation: object) -> tuple[type[BaseModel], ...]:
    """Return the sections that a key may hold: `X`, `X | None`, `tuple[X, ...]`, `dict[str, X]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(section for part in get_args(annotation) for section in _sections(part))


def _escape(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
