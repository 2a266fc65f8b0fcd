"""Base class, field types and rules shared by the sections of a run spec."""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import ConfigDict, Field

from hillclimb.spec.documented import Documented

ENV_KEY_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
EnvKey = Annotated[str, Field(pattern=rf"^{ENV_KEY_PATTERN.pattern}$")]
"""Key of an environment, as its platform spells it. It is part of metric names, keys of tasks and
addresses of pages, so it has no slash, colon, space or quote."""
ENV_KEY_FORM = "letters, digits, '.', '_' and '-', starting with a letter, at most 64 of them"
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$")]
"""A word by which runs are found again."""
MAX_TAGS = 32
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]


class Section(Documented):
    """Base class of sections: frozen, refuses unknown keys and NaN, fields have docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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
