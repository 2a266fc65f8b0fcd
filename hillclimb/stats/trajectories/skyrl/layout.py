"""Names of SkyRL's dumps in a bucket: `evals/{run}/global_step_N/{env}.jsonl`."""

from __future__ import annotations

import re
from dataclasses import dataclass

EVALS = "evals"
AGGREGATED = "aggregated_results"
_STEP = re.compile(r"global_step_(0|[1-9][0-9]{0,8})(?:_evals)?")
_FILE = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f]{1,200}\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPlace:
    """Place of a file within the dump of a run."""

    step: int
    name: str
    """The file's name without `.jsonl`: an environment, or `aggregated_results`."""

    @property
    def is_aggregated(self) -> bool:
        """True for the metrics of the step, False for rollouts."""
        return self.name == AGGREGATED

    @property
    def path(self) -> str:
        """Return the place below the run: `global_step_N/{name}.jsonl`."""
        return f"global_step_{self.step}/{self.name}.jsonl"


def place_of(path: str) -> DumpPlace | None:
    """Return the place of a path relative to the run's folder; None for any other file.

    SkyRL's local folders end in `_evals`; a bucket's do not.
    """
    folder, _, file = path.rpartition("/")
    step, name = _STEP.fullmatch(folder), _FILE.fullmatch(file)
    if step is None or name is None:
        return None
    return DumpPlace(step=int(step[1]), name=file.removesuffix(".jsonl"))


def file_stem(env_key: str) -> str:
    """Return an environment's name in files and metrics, where SkyRL replaces slashes."""
    return env_key.replace("/", "_")
