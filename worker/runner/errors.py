"""Errors of a runner, named by the boundary that they cross.

RunnerError
├── RunnerMisconfigured      a setting is missing or invalid: the runner exits
├── RunnerRunning            another runner uses this state directory: the runner exits
├── ServiceUnreachable       no answer, or an answer that says "later": try again
└── ServiceRefused           an answer that will not change
    ├── TokenRefused         the service does not know our token: the runner exits
    ├── RunnerUnknown        the service does not know our registration: register again
    └── PlanUnknown          a claimed attempt's plan is of a newer version: report its end
"""

from __future__ import annotations


class RunnerError(Exception):
    """Root of the tree."""


class RunnerMisconfigured(RunnerError):
    """A setting is missing or invalid."""


class RunnerRunning(RunnerError):
    """Another runner uses this state directory."""


class ServiceUnreachable(RunnerError):
    """The service gave no usable answer; a retry may succeed."""


class ServiceRefused(RunnerError):
    """The service refused the request; a retry will not help."""


class TokenRefused(ServiceRefused):
    """The runner token is wrong or revoked."""


class RunnerUnknown(ServiceRefused):
    """The service does not know this runner's registration."""


class PlanUnknown(ServiceRefused):
    """The plan of a claimed attempt says what this version does not know."""

    def __init__(self, attempt_id: str, message: str) -> None:
        super().__init__(message)
        self.attempt_id = attempt_id
