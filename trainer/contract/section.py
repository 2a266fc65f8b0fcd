"""What every section of a run spec is made of."""

from __future__ import annotations

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
