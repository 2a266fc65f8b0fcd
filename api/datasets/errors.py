"""Refusals of the datasets domain; `api/http/problems.py` alone knows the HTTP status of each.

RegistryError
├── DatasetNotFound       no such dataset or version in the caller's project
├── TaskNotFound          the version has no such task
├── ExclusionNotFound     the dataset has no such exclusion
├── SourceRefused         the service may not fetch from the address, or nothing is there
├── DatasetRejected       the file of tasks or its options are wrong; one entry per mistake
├── DatasetTooLarge       reading the file takes more memory, room or time than is allowed
├── DatasetsBusy          other files are being read already
└── DatasetUnusable       a run cannot use the dataset as its spec asks
"""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.protocol.spec_problems import SpecProblem


class RegistryError(Exception):
    """Base; the message is a sentence for the user."""


class DatasetNotFound(RegistryError):
    """No such dataset or version in the caller's project."""


class TaskNotFound(RegistryError):
    """The version has no such task."""


class ExclusionNotFound(RegistryError):
    """The dataset has no such exclusion."""


class SourceRefused(RegistryError):
    """The service may not fetch from this address, or nothing is there."""


class DatasetTooLarge(RegistryError):
    """Reading the file takes more memory, room or time than is allowed."""


class DatasetsBusy(RegistryError):
    """Other files are being read already."""


class DatasetUnusable(RegistryError):
    """A run cannot use the dataset as its spec asks."""


class DatasetRejected(RegistryError):
    """The file of tasks or its options are wrong."""

    def __init__(self, message: str, problems: Sequence[SpecProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
