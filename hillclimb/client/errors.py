"""Errors of the client, named by the boundary crossed.

HillclimbError
├── ApiUnreachable     the service does not respond, or its response cannot be read
│   └── UnexpectedResponse   the service is another version
├── ApiProblem         the service refused (problem+json), with its code and field errors
├── NotConfigured      no URL or key is configured
├── NoCheckpoint       the run has no checkpoint at that step
├── RunUnknown         no run has this id, prefix or name
├── EnvUnknown         a run or dataset does not have this environment
├── RunAmbiguous       several runs have this prefix or name
├── DownloadFailed     a file is missing or damaged
├── DownloadRefused    another file has the name of a file to download
├── LadderRefused      an acceptance cannot begin
├── ImportSourceError  there is nothing to import, or nowhere to export to
├── FiguresUnavailable the library that draws figures is not installed
├── SpecFileError      the spec file cannot be read
├── LocalFileError     a file or directory of this machine cannot be read or written
└── TableTextError     a text has no table of pass rates

A file that is no capsule raises `hillclimb.blobs.archive.capsule.CapsuleRefused`, in client and
service alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROW = "invalid_row"
"""Code of a mistake in a row of a file."""


class HillclimbError(Exception):
    """Base of the client's errors."""


class ApiUnreachable(HillclimbError):
    """The service does not respond, or its response cannot be read."""


class UnexpectedResponse(ApiUnreachable):
    """The service is another version: its response lacks a field, or has another type there."""


class NotConfigured(HillclimbError):
    """Neither the environment nor a state directory names a service."""


class TableTextError(HillclimbError):
    """A text has no table of pass rates."""


class LadderRefused(HillclimbError):
    """An acceptance cannot begin: a key, a scope, a setting or a GPU is missing."""


class ImportSourceError(HillclimbError):
    """There is nothing to import where the user says, or nowhere to export to."""


class LocalFileError(HillclimbError):
    """A file or directory of this machine cannot be read or written."""

    def __init__(self, error: OSError) -> None:
        place = f"{error.filename}: " if error.filename is not None else ""
        super().__init__(f"{place}{error.strerror or error}")


class SpecFileError(HillclimbError):
    """The spec file is missing, unreadable or not a mapping."""


class FiguresUnavailable(HillclimbError):
    """The library that draws figures is not installed."""


class NoCheckpoint(HillclimbError):
    """The run has no checkpoint, or none at that step."""


class ApiProblem(HillclimbError):
    """The service refused the request with problem+json."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = dict(body)
        self.code = str(body.get("code") or "unknown")
        self.detail = str(body.get("detail") or body.get("title") or f"HTTP {status}")
        super().__init__(self.detail)

    def sentences(self) -> list[str]:
        """Return the field errors as `pointer: sentence`, or the detail without any."""
        errors = self.body.get("errors") or []
        return [_sentence(error) for error in errors] or [self.detail]


def _sentence(error: Mapping[str, Any]) -> str:
    """Return a field error with its pointer, unless the message itself begins with its place."""
    message, pointer = str(error.get("message")), str(error.get("pointer") or "/")
    if error.get("code") == ROW or _names(message, pointer):
        return message
    return f"{pointer}: {message}"


def _names(message: str, pointer: str) -> bool:
    """Tell whether a message begins with its place: an unknown key, or a parameter of the query."""
    parameter = pointer.split("/")[1]
    return message.startswith(("query ", "unknown key ", f"unknown {parameter} '"))


class RunUnknown(HillclimbError):
    """No run has this id, prefix or name."""


class EnvUnknown(HillclimbError):
    """A run or dataset does not have this environment."""


class RunAmbiguous(HillclimbError):
    """Several runs have this prefix or name."""


class DownloadRefused(HillclimbError):
    """Another file has the name of a file to download."""


class DownloadFailed(HillclimbError):
    """A downloaded file is missing or differs from its checksum."""
