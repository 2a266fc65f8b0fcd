"""Options of an import of a W&B history, and the names of its metrics here."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.admission.imports.skyrl.options import Decoding, ModelName, Name
from api.results.comparison.config_diff import IMPORTED_MODEL
from hillclimb.spec.monitoring.old_metrics import EVAL, present_name
from hillclimb.spec.run import RunSpec

OWN_EVAL = re.compile(r"eval_([a-z][a-z0-9_]{0,31})/(.+)")
"""A run of this service writes `eval_{decoding}/` to W&B."""


class WandbOptions(BaseModel):
    """Options of the import; other keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    source: Name
    """Name of the run in W&B, and of the imported run."""
    decoding: Decoding = "greedy"
    """Decoding of the metrics `eval/…`, which do not name one."""
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.0
    """Sampling temperature of the evaluations. SkyRL's default is 0."""
    model: ModelName = "unknown"
    """Name of the model that it trained, for people."""

    def of_rows(self) -> dict[str, object]:
        """Return the options that change rows, for the digest."""
        return self.model_dump(exclude={"source", "model"})


def place_of_metric(name: str, default: str) -> tuple[str | None, str]:
    """Return the decoding (None: of a training step) and the name here of a metric of W&B."""
    if own := OWN_EVAL.fullmatch(name):
        return (default if own[1] == "train" else own[1]), f"{EVAL}{own[2]}"
    name = present_name(name)
    return (default if name.startswith(EVAL) else None), name


def imported_spec(options: WandbOptions, *, env_keys: tuple[str, ...], last_step: int) -> RunSpec:
    """Return the spec that the imported run stores: its name and its environments.

    Everything else has the schema's defaults, and says nothing about the run.
    """
    return RunSpec.model_validate(
        {
            "name": options.source,
            "kind": "train",
            "model": {"source": f"{IMPORTED_MODEL}{options.model}"},
            "data": {"env_keys": env_keys, "dataset": {"name": "imported"}},
            "environment": {"provider": "fleet"},
            "schedule": {"total_steps": max(1, last_step)},
            "eval": {
                "interval": 0,
                "decodings": [{"name": options.decoding, "temperature": options.temperature}],
            },
        }
    )
