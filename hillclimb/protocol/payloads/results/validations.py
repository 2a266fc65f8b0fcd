"""Payloads of validations."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.validation import (
    TaskValidation,
    TeacherTries,
    TeacherUse,
    ValidationSummary,
)


class TeacherTriesPayload(TeacherTries, Payload):
    """Numbers of a teacher's tries at one task, by result."""


class TeacherUsePayload(TeacherUse, Payload):
    """Usage of a teacher over the whole run."""


class TaskValidationPayload(TaskValidation, Payload):
    """One task: its checks and its verdict."""

    teacher: TeacherTriesPayload | None = None


class VersionName(Payload):
    """The dataset version of a run."""

    name: str
    version: int | None
    id: str | None


class ValidationPayload(ValidationSummary, Payload):
    """The results of a validation, with one page of its rows."""

    object: Literal["validation"] = "validation"
    run_id: str
    attempt: int | None
    created_at: datetime
    dataset: VersionName | None
    """Null where tasks are generated."""
    complete: bool
    """False if it was stopped before every task was checked."""
    duration_s: float
    teacher: TeacherUsePayload | None
    rows: list[TaskValidationPayload]
    num_rows: int
    """Rows that match the filters, on all pages."""
    has_more: bool
    next_after: int | None
