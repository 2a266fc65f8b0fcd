"""Errors of access; every message is a sentence for the user."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.protocol.spec_problems import SpecProblem


class IdentityError(Exception):
    """Base class of the errors of access."""


class NotAuthenticated(IdentityError):
    """No key, or an invalid one."""


class NotAllowed(IdentityError):
    """The caller is known but lacks the scope."""


class WeakKey(IdentityError):
    """A key from the environment is too short to be a secret."""


class KeyNotFound(IdentityError):
    """No key of the project has this id."""


class KeyFixed(IdentityError):
    """The key cannot be changed here: it was revoked, or comes from the environment."""


class MemberNotFound(IdentityError):
    """No member of the project has this address."""


class ProjectNotFound(IdentityError):
    """The caller sees no such project."""


class ProjectInUse(IdentityError):
    """The project cannot be deleted; `problems` name what is in the way."""

    def __init__(self, message: str, problems: Sequence[SpecProblem]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class ProjectExists(IdentityError):
    """Another project has this name."""


class SignInFailed(IdentityError):
    """The provider of identities did not confirm the person."""


class LimitReached(IdentityError):
    """A rate limit or a quota is reached; the request may succeed after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateExceeded(LimitReached):
    """The key has sent too many requests."""


class TooManyStreams(LimitReached):
    """The key or its project has too many streams of events open."""


class StreamsBusy(LimitReached):
    """The process has as many streams of events open as it serves."""


class QuotaExceeded(LimitReached):
    """The project has used up a quota."""
