"""Turns a rejected spec into sentences that say where it is wrong and what to do.

The same sentences reach a user through the API (problem+json), the CLI and the trainer.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from trainer.contract.spec import RunSpec

PLANNED: frozenset[str] = frozenset(
    {
        "cluster",
        "resources",
        "guards",
        "experiment",
        "secrets",
        "notify/webhook",
        "backend/cloud",
        "data/version",
        "environment/modality",
        "rollout/top_p",
    }
)
"""Keys of the design that this version does not read yet (paths without a leading slash)."""


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
    close = difflib.get_close_matches(str(loc[-1]), _keys_beside(loc), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return SpecProblem(pointer=pointer, code="unknown_key", message=f"unknown key {path!r}{hint}")


def _keys_beside(loc: Sequence[int | str]) -> Iterable[str]:
    """Return the keys allowed where the unknown one stands."""
    model: type[BaseModel] = RunSpec
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        nested = field.annotation if field else None
        if not (isinstance(nested, type) and issubclass(nested, BaseModel)):
            return ()
        model = nested
    return model.model_fields


def _escape(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
