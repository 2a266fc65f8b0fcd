"""Errors of acceptance; `api/http/problems.py` maps each to an HTTP status.

AcceptanceError
├── AcceptanceRejected   the evidence is of a run that does not prove it
├── ChecksMisfit         the service cannot climb that ladder, or lacks what it needs
└── PathNotAccepted      the spec uses a path without leave, and has no evidence of it any more
"""

from __future__ import annotations


class AcceptanceError(Exception):
    """Base class; the message is a sentence for the user."""


class AcceptanceRejected(AcceptanceError):
    """The evidence is of a run that does not prove it."""


class ChecksMisfit(AcceptanceError):
    """The service cannot climb that ladder, or lacks what it needs."""


class PathNotAccepted(AcceptanceError):
    """The spec uses an experimental path, and neither its flag nor evidence allows it."""
