"""`manifest.json`: written last, so a directory that has one is a whole checkpoint."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from trainer.contract.spec import RunSpec


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ManifestFile(_Frozen):
    """One file of a checkpoint, by its path relative to the checkpoint."""

    path: str
    size_bytes: Annotated[int, Field(ge=0)]
    sha256: str


class Manifest(_Frozen):
    """What a checkpoint consists of and where it comes from."""

    schema_version: Literal[1] = 1
    run_id: str
    step: Annotated[int, Field(ge=0)]
    attempt: Annotated[int, Field(ge=1)]
    config_hash: str
    """`config_hash` of the spec it was trained under."""
    parent: str | None = None
    """Blob key of the checkpoint this attempt went on from."""
    final: bool = False
    """True for the checkpoint after the last step."""
    created_at: datetime
    files: tuple[ManifestFile, ...]
    """`policy/` is a Hugging Face directory, `learner/` the state that training goes on from."""
    sampler: dict[str, JsonValue]
    """Position in the order of training tasks."""
    stream: dict[str, JsonValue] = Field(default_factory=dict)
    """Draws made, and tasks drawn that no step has learned from; empty in old checkpoints."""
    evaluated_step: Annotated[int, Field(ge=0)] | None = None
    """Step of the last evaluation that was complete."""
    ran_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Seconds that the run has worked to get here, over its attempts."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def config_hash(spec: RunSpec) -> str:
    """SHA-256 (hex) of the resolved spec as canonical JSON."""
    canonical = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
