"""Errors of the stored artifacts.

ArtifactError
└── ArtifactNotFound    no such trajectory, checkpoint, file or attempt, or its file is damaged
"""


class ArtifactError(Exception):
    """Base of the errors in `api.results.artifacts`."""


class ArtifactNotFound(ArtifactError):
    """No artifact of that name; the message is a sentence for the user."""
