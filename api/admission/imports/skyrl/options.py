"""Options of an import of SkyRL's dumps: what a dump does not say."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.results.comparison.config_diff import IMPORTED_MODEL
from hillclimb.spec.run import RunSpec

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$")]

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/@-]{0,199}$")]


def _refuse_train(name: str) -> str:
    if name == "train":
        raise ValueError("`train` is taken by training rollouts: give the decoding another name")
    return name


Decoding = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$"), AfterValidator(_refuse_train)]


class SkyRLOptions(BaseModel):
    """Options of the import; other keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    source: Name
    """Name of the run in SkyRL: the folder below `evals/`, and the name of the imported run."""
    decoding: Decoding = "greedy"
    """Name of the decoding; runs are compared under decodings of the same name."""
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.0
    """Sampling temperature of the evaluations. SkyRL's default is 0."""
    pass_threshold: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """A rollout passes when its reward is at least this. SkyRL's own figures count any reward
    above 0."""
    total_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Last step that the run was planned to have. null: not known, and the last evaluation counts
    as chosen from all of them."""
    model: ModelName = "unknown"
    """Name of the model that it trained, for people."""

    def of_rows(self) -> dict[str, object]:
        """Return the options that change rows, for the digest."""
        return self.model_dump(exclude={"source", "model"})


def imported_spec(
    options: SkyRLOptions, *, env_keys: tuple[str, ...], num_samples: int, last_step: int
) -> RunSpec:
    """Return the spec that the imported run stores: its name, environments, and evaluations.

    Everything else has the schema's defaults, and says nothing about the run.
    """
    # A spec refuses several greedy samples, which would be alike; a dump has them.
    num_samples = num_samples if options.temperature else 1
    total = options.total_steps or last_step
    return RunSpec.model_validate(
        {
            "name": options.source,
            "kind": "train",
            "model": {"source": f"{IMPORTED_MODEL}{options.model}"},
            "data": {"env_keys": env_keys, "dataset": {"name": "imported"}},
            "environment": {"provider": "fleet"},
            "schedule": {"total_steps": max(1, total)},
            "eval": {
                "interval": 0,
                "pass_threshold": options.pass_threshold,
                "decodings": [
                    {
                        "name": options.decoding,
                        "temperature": options.temperature,
                        "n_samples_per_prompt": num_samples,
                    }
                ],
            },
        }
    )
