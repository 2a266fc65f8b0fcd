"""Errors of imports.

ImportsError
├── ImportRejected   what was sent cannot be imported; the message says why
└── ImportsBusy      other imports are in progress
"""

from __future__ import annotations


class ImportsError(Exception):
    """Base class; the message is a sentence for the user."""


class ImportRejected(ImportsError):
    """The file is damaged, of another format, or beyond a limit."""


class ImportsBusy(ImportsError):
    """Other imports are in progress: retry."""
