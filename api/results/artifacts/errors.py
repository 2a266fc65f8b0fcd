"""Errors of the stored artifacts.

ArtifactError
└── ArtifactNotFound    no such trajectory, checkpoint, file or attempt; its file is gone or torn
"""


class ArtifactError(Exception):
    """Base of the errors in `api.artifacts`."""


class ArtifactNotFound(ArtifactError):
    """There is nothing under that name; the message is a sentence for the user."""
