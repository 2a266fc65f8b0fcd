"""Errors of experiments."""

from __future__ import annotations


class ExperimentError(Exception):
    """Root of the tree; the message is a sentence for the user."""


class ExperimentNotFound(ExperimentError):
    """The project has no such experiment, or the experiment no such run."""


class ExperimentExists(ExperimentError):
    """The project has an experiment of this key."""


class ExperimentRejected(ExperimentError):
    """The request contradicts the experiment; the message says what would do."""
