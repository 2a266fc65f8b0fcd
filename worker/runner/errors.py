"""What can go wrong for a runner, named by the boundary that was crossed.

RunnerError
├── RunnerMisconfigured      the environment says too little or nonsense: the runner exits
├── RunnerRunning            another runner holds this state directory: the runner exits
├── ServiceUnreachable       no answer, or an answer that says "later": try again
└── ServiceRefused           an answer that will not change
    ├── TokenRefused         the service does not know our token: the runner exits
    └── RunnerUnknown        the service does not know our registration: register again
"""

from __future__ import annotations


class RunnerError(Exception):
    """Root of the tree."""


class RunnerMisconfigured(RunnerError):
    """A setting is missing or makes no sense."""


class RunnerRunning(RunnerError):
    """Another runner works in this state directory."""


class ServiceUnreachable(RunnerError):
    """The service gave no usable answer this time."""


class ServiceRefused(RunnerError):
    """The service said no; asking again will not help."""


class TokenRefused(ServiceRefused):
    """The runner token is wrong or revoked."""


class RunnerUnknown(ServiceRefused):
    """The registration is gone."""
