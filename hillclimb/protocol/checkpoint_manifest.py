"""Checkpoint manifest (`manifest.json`): written last, so a directory with one is complete."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, ValidationError

from hillclimb.spec.documented import Documented
from hillclimb.spec.run import RunSpec


class _Frozen(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _is_inside(path: str) -> str:
    parts = path.split("/")
    if "\\" in path or not path.isprintable() or {"", ".", ".."} & set(parts):
        raise ValueError(f"{path!r:.200} is no file inside of the checkpoint")
    return path


class ManifestFile(_Frozen):
    """One file of a checkpoint, by its path relative to the checkpoint.

    Whoever fetches it writes a file there: whoever writes to the store must not choose another
    folder of that machine.
    """

    path: Annotated[str, AfterValidator(_is_inside)]
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


def listed_files(manifest: JsonValue) -> list[ManifestFile]:
    """Return the files of a manifest as a service sent it.

    Raises:
        ValueError: it lists none, or one that is not inside of the checkpoint.
    """
    listed = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the manifest lists no files")  # noqa: TRY004 - a fault of the file
    try:
        return [ManifestFile.model_validate(each) for each in listed]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(str(first["msg"]).removeprefix("Value error, ")) from error


def config_hash(spec: RunSpec) -> str:
    """SHA-256 (hex) of the resolved spec as canonical JSON, without the service's evidence."""
    return hash_of_resolved(spec.model_dump(mode="json"))


def hash_of_resolved(spec: dict[str, Any]) -> str:
    """SHA-256 (hex) of a spec with every default written out, without the service's evidence."""
    settings = {name: value for name, value in spec.items() if name != "accepted"}
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
