"""A sign-in in progress: a signed cookie of the browser that began it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime

from api.tables.access.errors import SignInFailed

COOKIE = "hillclimb_oidc"
SIGN_IN_S = 600
PURPOSE = b"hillclimb sign-in v1\n"
"""Part of what is signed: other signatures with the same secret are no sign-ins."""
CHOICE_PURPOSE = b"hillclimb invitation v1\n"
STALE = "This sign-in was begun in another browser, or more than ten minutes ago: begin again."


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in: the values that the provider must send back with the browser."""

    state: str
    nonce: str
    verifier: str
    next: str
    """Path to show afterwards."""
    project: str | None
    """The project to open; null for the person's first one."""
    until: int
    """End of the sign-in (Unix time, s)."""


def begin_sign_in(next_path: str, project: str | None, *, now: datetime) -> SignIn:
    """Return a new sign-in with random state, nonce and PKCE verifier."""
    return SignIn(
        state=secrets.token_urlsafe(24),
        nonce=secrets.token_urlsafe(24),
        verifier=secrets.token_urlsafe(48),
        next=next_path,
        project=project,
        until=int(now.timestamp()) + SIGN_IN_S,
    )


def seal(sign_in: SignIn, *, secret: str) -> str:
    """Return the sign-in as a cookie."""
    payload = base64.urlsafe_b64encode(json.dumps(asdict(sign_in)).encode())
    return f"{payload.decode()}.{_signature(payload, secret)}"


def unseal(cookie: str | None, state: str, *, secret: str, now: datetime) -> SignIn:
    """Return the sign-in of a cookie; raises SignInFailed if it is not this one, or too old."""
    payload, _, signature = (cookie or "").partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(payload.encode(), secret).encode()):
        raise SignInFailed(STALE)
    try:
        sign_in = SignIn(**json.loads(base64.urlsafe_b64decode(payload)))
    except (binascii.Error, ValueError, TypeError) as error:
        raise SignInFailed(STALE) from error
    is_same = hmac.compare_digest(sign_in.state.encode(), state.encode())
    if not is_same or sign_in.until < now.timestamp():
        raise SignInFailed(STALE)
    return sign_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A button of the page of invitations: who joins which project, in which browser."""

    state: str
    """Of the sign-in, which the browser's cookie must have too."""
    person_id: str
    project_id: str


def seal_choice(choice: Choice, *, secret: str) -> str:
    """Return the choice as the value of a button."""
    payload = base64.urlsafe_b64encode(json.dumps(asdict(choice)).encode())
    return f"{payload.decode()}.{_signature(payload, secret, CHOICE_PURPOSE)}"


def unseal_choice(sealed: str, *, secret: str) -> Choice:
    """Return the choice of a button; raises SignInFailed for one that is not ours."""
    payload, _, signature = sealed.partition(".")
    expected = _signature(payload.encode(), secret, CHOICE_PURPOSE)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise SignInFailed(STALE)
    return Choice(**json.loads(base64.urlsafe_b64decode(payload)))


def _signature(payload: bytes, secret: str, purpose: bytes = PURPOSE) -> str:
    return hmac.new(secret.encode(), purpose + payload, hashlib.sha256).hexdigest()
