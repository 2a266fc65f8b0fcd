"""Checks that a request comes from Slack: the signature over its raw body, and its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slack_sdk.signature import Clock, SignatureVerifier

from api.notices.errors import RequestForged


@dataclass(frozen=True, slots=True)
class _At(Clock):
    """A clock that stands at the time of the request's arrival."""

    moment: datetime

    def now(self) -> float:
        """Return the time as seconds since 1970."""
        return self.moment.timestamp()


def verify(
    signing_secret: str, body: bytes, *, timestamp: str, signature: str, now: datetime
) -> None:
    """Raise RequestForged unless Slack signed these bytes within the last five minutes.

    The comparison takes the same time wherever the signatures differ.
    """
    verifier = SignatureVerifier(signing_secret, clock=_At(now))
    try:
        is_valid = verifier.is_valid(body, timestamp, signature)
    except (ValueError, TypeError) as error:  # no number, no UTF-8, no ASCII
        raise RequestForged("The signature of this request cannot be read.") from error
    if not is_valid:
        raise RequestForged(
            "This request is not signed with this app's signing secret, or is older than five"
            " minutes."
        )
