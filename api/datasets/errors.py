"""Errors of the datasets domain; `api/http/problems.py` alone maps each to an HTTP status.

RegistryError
├── DatasetNotFound       no such dataset or version in the caller's project
├── TaskNotFound          the version has no such task
├── ExclusionNotFound     the dataset has no such exclusion
├── SourceRefused         the service may not fetch from the address, or it has no file
├── DatasetRejected       the file of tasks or its options are invalid; one entry per mistake
├── DatasetTooLarge       reading the file takes more memory, disk or time than allowed
├── DatasetsBusy          too many other files are being read
└── DatasetUnusable       a run cannot use the dataset as its spec asks
"""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.protocol.spec_problems import SpecProblem


class RegistryError(Exception):
    """Base class; the message is a sentence for the user."""


class DatasetNotFound(RegistryError):
    """No such dataset or version in the caller's project."""


class TaskNotFound(RegistryError):
    """The version has no such task."""


class ExclusionNotFound(RegistryError):
    """The dataset has no such exclusion."""


class SourceRefused(RegistryError):
    """The service may not fetch from the address, or it has no file."""


class DatasetTooLarge(RegistryError):
    """Reading the file takes more memory, disk or time than allowed."""


class DatasetsBusy(RegistryError):
    """Too many other files are being read."""


class DatasetUnusable(RegistryError):
    """A run cannot use the dataset as its spec asks."""


class DatasetRejected(RegistryError):
    """The file of tasks or its options are invalid."""

    def __init__(self, message: str, problems: Sequence[SpecProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
