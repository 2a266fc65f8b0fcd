"""Browser sessions: signed read-only cookies, and one-time codes that open them.

A session names its API key and ends with it, so revoking the key is enough. The session of a person
names a project, and ends with the membership. Signing out ends a session before its time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from api.tables import ApiKey, SessionCode
from api.tables.access.errors import NotAllowed, NotAuthenticated
from api.tables.access.identity import (
    BrowserSession,
    Principal,
    principal_of,
    principal_of_person,
)
from api.tables.access.members import check_session

COOKIE = "hillclimb_session"
SESSION_S = 12 * 3600
CODE_S = 300
PURPOSE = b"hillclimb browser session v1\n"
"""Part of what is signed: other signatures with the same secret are no sessions."""
USED = "This link was used before or has expired: create a new one."
CODE_PURPOSE = b"hillclimb sign-in code v1\n"
TAG_CHARS = 16
"""Hex digits of a code's signature. It protects the database; the rest of a code is the secret."""
FORM_PURPOSE = b"hillclimb form v1\n"
"""The same of the tokens of forms."""


def open_session(principal: Principal, *, secret: str, now: datetime) -> str:
    """Return the cookie of a session that is valid for `SESSION_S` seconds."""
    claims: dict[str, object] = {"until": int(now.timestamp()) + SESSION_S}
    if principal.key_id is not None:
        claims["key"] = principal.key_id
    else:
        claims |= {
            "person": principal.person_id,
            "project": principal.project_id,
            "since": now.timestamp(),
        }
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode())
    return f"{payload.decode()}.{_sign(payload, secret)}"


def read_session(session: Session, cookie: str, *, secret: str, now: datetime) -> Principal:
    """Return the principal of a cookie; raises NotAuthenticated if it is forged, old or revoked."""
    payload, _, signature = cookie.partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(payload.encode(), secret).encode()):
        raise NotAuthenticated("The session is not valid: sign in again.")
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload))
    except (binascii.Error, ValueError) as error:
        raise NotAuthenticated("The session is not valid: sign in again.") from error
    if claims["until"] < now.timestamp():
        raise NotAuthenticated("The session has ended: sign in again.")
    opened = BrowserSession(
        sha256=_digest(cookie),
        expires_at=datetime.fromtimestamp(claims["until"], UTC),
        since=datetime.fromtimestamp(claims["since"], UTC) if "since" in claims else None,
    )
    person_id = claims.get("person")
    check_session(session, opened, person_id)
    if "key" in claims:
        caller = _principal(session, str(claims["key"]), now=now)
    else:
        caller = principal_of_person(session, str(claims["project"]), str(person_id))
    return replace(caller, session=opened)


def form_token(cookie: str, *, secret: str) -> str:
    """Return the token that every form of a session sends: another site cannot know it."""
    return hmac.new(secret.encode(), FORM_PURPOSE + cookie.encode(), hashlib.sha256).hexdigest()


def check_form_token(cookie: str, token: str, *, secret: str) -> None:
    """Raise NotAuthenticated for a form that this session's pages did not make."""
    expected = form_token(cookie, secret=secret)
    if not hmac.compare_digest(expected.encode(), token.encode()):
        raise NotAuthenticated("The form is not of this session: open its page again.")


def mint_code(session: Session, principal: Principal, *, secret: str, now: datetime) -> str:
    """Return a code that opens one session of the principal within `CODE_S` seconds.

    It ends in a part of a signature: codes that nobody minted need no look at the database.
    """
    if principal.key_id is None:
        raise NotAllowed("Only the owner of a key can create a sign-in link.")
    session.execute(delete(SessionCode).where(SessionCode.expires_at < now))
    code = secrets.token_urlsafe(24)
    code += _code_tag(code, secret)
    session.add(
        SessionCode(
            sha256=_digest(code),
            project_id=principal.project_id,
            key_id=principal.key_id,
            expires_at=now + timedelta(seconds=CODE_S),
        )
    )
    return code


def is_minted(code: str, *, secret: str) -> bool:
    """Tell whether this service has minted the code, whatever became of it."""
    expected = _code_tag(code[:-TAG_CHARS], secret)
    return hmac.compare_digest(code[-TAG_CHARS:].encode(), expected.encode())


def principal_of_code(session: Session, code: str, *, now: datetime) -> Principal:
    """Return whom a code signs in, and leave it valid; raises NotAuthenticated."""
    valid = (SessionCode.sha256 == _digest(code), SessionCode.expires_at >= now)
    key_id = session.scalar(select(SessionCode.key_id).where(*valid))
    if key_id is None:
        raise NotAuthenticated(USED)
    return _principal(session, key_id, now=now)


def redeem_code(session: Session, code: str, *, now: datetime) -> Principal:
    """Redeem a code and return its principal; raises NotAuthenticated for an invalid one."""
    key_id = session.scalar(
        delete(SessionCode)
        .where(SessionCode.sha256 == _digest(code), SessionCode.expires_at >= now)
        .returning(SessionCode.key_id)
    )
    if key_id is None:
        raise NotAuthenticated(USED)
    return _principal(session, key_id, now=now)


def _principal(session: Session, key_id: str, *, now: datetime) -> Principal:
    key = session.get(ApiKey, key_id)
    if key is None:
        raise NotAuthenticated("The API key of this session was revoked.")
    return principal_of(session, key, now=now)


def _sign(payload: bytes, secret: str) -> str:
    return hmac.new(secret.encode(), PURPOSE + payload, hashlib.sha256).hexdigest()


def _code_tag(token: str, secret: str) -> str:
    signature = hmac.new(secret.encode(), CODE_PURPOSE + token.encode(), hashlib.sha256)
    return signature.hexdigest()[:TAG_CHARS]


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
