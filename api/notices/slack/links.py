"""Links of Slack users to API keys: made by a one-time code, and ended by the key's owner."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.notices.errors import LinkCodeRejected, LinkNotFound
from api.tables import ApiKey, SlackLink, SlackLinkCode
from api.tables.access.identity import NotAllowed, Principal, Scope, principal_of_key

CODE_S = 600
"""A code has to be used within this time (seconds)."""
ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""Without characters that look alike."""
CODE_CHARS = 12
"""59 random bits: beyond guessing within `CODE_S`, and short enough to type."""
MAX_LISTED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackUser:
    """A user of a Slack workspace."""

    team_id: str
    user_id: str


def mint_link_code(session: Session, principal: Principal, *, now: datetime) -> str:
    """Return a code that links one Slack user to the principal's key within `CODE_S` seconds."""
    code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARS))
    session.add(
        SlackLinkCode(
            sha256=_digest(code),
            project_id=principal.project_id,
            key_id=principal.key_id,
            expires_at=now + timedelta(seconds=CODE_S),
        )
    )
    return code


def redeem_link_code(session: Session, code: str, user: SlackUser, *, now: datetime) -> Principal:
    """Link a Slack user to the code's key, in place of an earlier link.

    Raises LinkCodeRejected for a code that is unknown, was used before, or has expired.
    """
    row = session.execute(
        delete(SlackLinkCode)
        .where(SlackLinkCode.sha256 == _digest(code.strip().upper()))
        .where(SlackLinkCode.expires_at >= now)
        .returning(SlackLinkCode.project_id, SlackLinkCode.key_id)
    ).one_or_none()
    principal = (
        None if row is None else principal_of_key(session, row.key_id, now=now, via=_via(user))
    )
    if row is None or principal is None:
        raise LinkCodeRejected(
            "This code is not valid: it was used before or has expired. Run `hillclimb slack link`"
            " for a new one."
        )
    owner = {"project_id": row.project_id, "key_id": row.key_id}
    session.execute(
        insert(SlackLink)
        .values(team_id=user.team_id, user_id=user.user_id, created_at=now, **owner)
        .on_conflict_do_update(
            index_elements=[SlackLink.team_id, SlackLink.user_id], set_=owner | {"created_at": now}
        )
    )
    return principal


def linked_principal(session: Session, user: SlackUser, *, now: datetime) -> Principal | None:
    """Return the principal as whom a Slack user acts; null without a link or a valid key."""
    link = session.get(SlackLink, (user.team_id, user.user_id))
    if link is None:
        return None
    return principal_of_key(session, link.key_id, now=now, via=_via(user))


def list_links(session: Session, project_id: str) -> Sequence[SlackLink]:
    """Return the newest links of a project."""
    query = select(SlackLink).where(SlackLink.project_id == project_id)
    query = query.order_by(SlackLink.created_at.desc(), SlackLink.team_id, SlackLink.user_id)
    return session.scalars(query.limit(MAX_LISTED)).all()


def remove_link(session: Session, caller: Principal, user: SlackUser) -> None:
    """End a link of the caller's own key or person; an admin may end every link of the project.

    Raises LinkNotFound and NotAllowed.
    """
    link = session.get(SlackLink, (user.team_id, user.user_id), with_for_update=True)
    if link is None or link.project_id != caller.project_id:
        raise LinkNotFound(f"The project has no link of user {user.user_id} of {user.team_id}.")
    owner = session.get_one(ApiKey, link.key_id).person_id
    is_own = link.key_id == caller.key_id or (owner is not None and owner == caller.person_id)
    if not is_own and Scope.ADMIN.value not in caller.scopes:
        raise NotAllowed(
            f"The link of user {user.user_id} is that of another key: its owner ends it, or an"
            " admin of the project."
        )
    session.delete(link)
    session.flush()


def remove_links_of_team(session: Session, team_id: str) -> None:
    """End every link of a workspace, from which the app was removed."""
    session.execute(delete(SlackLink).where(SlackLink.team_id == team_id))


def _via(user: SlackUser) -> str:
    return f"slack:{user.user_id}"


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
