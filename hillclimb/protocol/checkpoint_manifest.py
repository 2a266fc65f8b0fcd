"""Checkpoint manifest (`manifest.json`): written last, so a directory with one is complete."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from hillclimb.spec.documented import Documented
from hillclimb.spec.run import RunSpec


class _Frozen(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ManifestFile(_Frozen):
    """One file of a checkpoint, by its path relative to the checkpoint."""

    path: str
    size_bytes: Annotated[int, Field(ge=0)]
    sha256: str


class Manifest(_Frozen):
    """Files of a checkpoint, its origin and the trainer's state beside the weights."""

    schema_version: Literal[1] = 1
    run_id: str
    step: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)]
    config_hash: str
    """`config_hash` of the spec it was trained under."""
    parent: str | None = None
    """Blob key of the checkpoint that this attempt resumed from."""
    final: bool = False
    """True for the checkpoint after the last step."""
    created_at: datetime
    files: tuple[ManifestFile, ...]
    """`policy/` is a Hugging Face directory, `learner/` the state that training resumes from."""
    sampler: dict[str, JsonValue]
    """Position in the order of training tasks."""
    buffer: dict[str, JsonValue] = Field(default_factory=dict)
    """State of the rollout buffer: number of draws, and tasks drawn but not yet trained on; empty
    in old checkpoints."""
    evaluated_step: Annotated[int, Field(ge=0)] | None = None
    """Step of the last complete evaluation."""
    ran_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Running time of the run up to this checkpoint, over its attempts (seconds)."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def config_hash(spec: RunSpec) -> str:
    """SHA-256 (hex) of the resolved spec as canonical JSON."""
    canonical = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
