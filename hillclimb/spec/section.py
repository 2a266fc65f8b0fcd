"""What every section of a run spec is made of."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

EnvKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]


class Section(BaseModel):
    """Frozen, refuses unknown keys and NaN, documents each field by the string under it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


def refuse_unread(
    section: Section, keys: tuple[str, ...], *, only: tuple[str, *tuple[str | bool, ...]]
) -> None:
    """Refuse a key that is not at its default though nothing that reads it is on.

    `only` names the setting that decides, and the values with which the keys are read.
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
