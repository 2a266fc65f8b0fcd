"""Base class, field types and rules shared by the sections of a run spec."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from hillclimb.spec.documented import Documented

ENV_KEY_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
EnvKey = Annotated[str, Field(pattern=rf"^{ENV_KEY_PATTERN.pattern}$")]
"""Key of an environment, as its platform spells it. It is part of metric names, keys of tasks and
addresses of pages, so it has no slash, colon, space or quote."""
ENV_KEY_FORM = "letters, digits, '.', '_' and '-', starting with a letter, at most 64 of them"
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$")]
"""A word by which runs are found again."""
MAX_TAGS = 32
_TRUTH = "it is true or false, without quotes"
_NOT_TRUTH = (
    "it is true or false, as YAML reads yes, no, on and off too: write a number, or a text in"
    " quotes"
)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR, LAST_YEAR = EARLIEST.year, 9998
"""Years of moments that can be read again in any time zone: the database has more of them."""
MOMENT_FORM = "^(19[7-9][0-9]|[2-8][0-9]{3}|9([0-8][0-9]{2}|9([0-8][0-9]|9[0-8])))-"
"""How a moment of these years begins."""


_DATE = re.compile(r"[0-9]{4}-")


def _is_text(value: object) -> object:
    is_moment = isinstance(value, datetime)
    if not is_moment and not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError('write a time with its zone, such as "2026-11-20T12:00:00Z"')
    return value


def _is_storable(moment: datetime) -> datetime:
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"a time lies in the years {FIRST_YEAR} to {LAST_YEAR}")
    return moment


StorableTime = Annotated[
    AwareDatetime,
    AfterValidator(_is_storable),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": MOMENT_FORM}),
]
Moment = Annotated[StorableTime, BeforeValidator(_is_text)]
"""A time that a request names; a number is refused, which could count seconds or milliseconds."""


def _as_whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_as_whole)
"""Takes 3.0 for 3, as JSON Schema does; a strict int takes neither this nor true nor "3"."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]


class Section(Documented):
    """Base class of sections: frozen, refuses unknown keys and NaN, fields have docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, values: object) -> object:
        """Refuse true and false where a number or a text is expected: they would count as 1 and 0.

        YAML reads yes, no, on and off as them. The other way round a number or a text is refused
        where only true and false are expected.
        """
        mistakes: list[Any] = [
            {
                "type": "value_error",
                "loc": (name,),
                "input": value,
                "ctx": {"error": ValueError(mistake)},
            }
            for name, value in (values.items() if isinstance(values, dict) else ())
            if (mistake := _mistake_of_truth(cls, name, value))
        ]
        if mistakes:
            raise ValidationError.from_exception_data(cls.__name__, mistakes)
        return values


def _mistake_of_truth(section: type[Section], name: str, value: object) -> str | None:
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(each, bool) for each in parts):
        return None if _takes_truth(section, name) else _NOT_TRUTH
    is_other = isinstance(value, int | float | str) and _takes_nothing_else(section, name)
    return _TRUTH if is_other else None


@cache
def _takes_nothing_else(section: type[Section], name: str) -> bool:
    """Tell whether a key has to be true, false or null."""
    field = section.model_fields.get(name)
    atoms = [] if field is None else list(_atoms(field.annotation))
    return bool in atoms and all(each in (bool, type(None)) for each in atoms)


@cache
def _takes_truth(section: type[Section], name: str) -> bool:
    """Tell whether a key may be true or false, or is no number and no text at all."""
    if name not in section.model_fields:
        return True
    atoms = list(_atoms(section.model_fields[name].annotation))
    if any(each is bool or isinstance(each, bool) for each in atoms):
        return True
    return not any(each in (int, float, str) for each in atoms)


def _atoms(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 (any annotation)
    """Yield the types and the values of literals in an annotation."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for each in inner:
        yield from _atoms(each)


def never_null(*names: str) -> Callable[[dict[str, Any]], None]:
    """Return the `json_schema_extra` of changes: these keys may be left out and are never null.

    Their models have null for a key that is left out, which the schema must not offer.
    """

    def without_null(schema: dict[str, Any]) -> None:
        for name in names:
            field = schema["properties"][name]
            (value,) = (each for each in field.pop("anyOf") if each != {"type": "null"})
            del field["default"]
            field |= value

    return without_null


def reject_unused(
    section: Section, keys: tuple[str, ...], *, only: tuple[str, *tuple[str | bool, ...]]
) -> None:
    """Refuse keys that differ from their defaults although no setting reads them.

    `only` names the setting that decides, followed by its values for which the keys are read.

    Raises:
        ValueError: a sentence that names the key and what to change.
    """
    chooser, *readers = only
    if getattr(section, chooser) in readers:
        return
    values = " or ".join(map(json.dumps, readers))
    for key in keys:
        if getattr(section, key) != type(section).model_fields[key].default:
            raise ValueError(
                f"{key} is set, but it is read only where {chooser} is {values}: set"
                f" that, or leave {key} out"
            )


def refuse_unnested(inner: str, inner_s: float, outer: str, outer_s: float) -> None:
    """Refuse a deadline that is not smaller than the enclosing one.

    Raises:
        ValueError: a sentence that names both.
    """
    if inner_s >= outer_s:
        raise ValueError(
            f"{inner} ({inner_s:g}) must be smaller than {outer} ({outer_s:g}): lower the first or"
            " raise the second"
        )
