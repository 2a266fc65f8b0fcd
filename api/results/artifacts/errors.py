"""Errors of the stored artifacts.

ArtifactError
├── ArtifactNotFound    no such trajectory, checkpoint, file or attempt, or its file is damaged
└── ArtifactRemoved     it was there, and the operator's retention has removed it
"""


class ArtifactError(Exception):
    """Base of the errors in `api.results.artifacts`."""


class ArtifactNotFound(ArtifactError):
    """No artifact of that name; the message is a sentence for the user."""


class ArtifactRemoved(ArtifactError):
    """The operator's retention has removed it; the message is a sentence for the user."""
