"""Payloads of checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload


class CheckpointPayload(Payload):
    """A complete checkpoint."""

    object: Literal["checkpoint"] = "checkpoint"
    run_id: str
    step: int
    attempt: int
    path: str
    """Its directory, relative to the run's."""
    manifest_sha256: str
    size_bytes: int
    final: bool
    """True for the checkpoint after the last step."""
    created_at: datetime
    qualification: Literal["untried", "qualified", "refused"]
    """`qualified` once a fresh process has loaded it and taken an update; nothing resumes from a
    `refused` one. `untried` without a trial (`checkpoints.qualify`), or before its end."""
    refusal: str | None
    """Reason for which it is refused."""


class CheckpointWithManifest(CheckpointPayload):
    """A complete checkpoint with its manifest."""

    manifest: dict[str, Any]
    """`manifest.json`: files, sizes, hashes."""


class CheckpointList(Payload):
    """The checkpoints of a run, highest step first."""

    object: Literal["list"] = "list"
    data: list[CheckpointPayload]
    has_more: bool
