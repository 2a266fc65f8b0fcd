"""People and their roles in projects."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables import ApiKey, EndedSession, Person, Project, ProjectMember
from api.tables.access.errors import MemberNotFound, NotAuthenticated, SignInFailed
from api.tables.access.identity import (
    BrowserSession,
    Principal,
    principal_of,
    principal_of_person,
)
from api.tables.access.roles import Role
from api.tables.ids import new_id

_SMALL = {ord(letter): letter.lower() for letter in string.ascii_uppercase}


def plain_address(email: str) -> str:
    """Return an address as it is stored: with small letters, of ASCII alone.

    Of other alphabets some capitals become a letter of ASCII (the Kelvin sign a k): whoever had the
    one address would be the person who was invited under the other.
    """
    return email.translate(_SMALL)


def list_members(
    session: Session, project_id: str, *, after: str | None, limit: int
) -> Sequence[tuple[ProjectMember, Person]]:
    """Return members with their people by address, behind the address `after`."""
    query = (
        select(ProjectMember, Person)
        .join(Person, Person.id == ProjectMember.person_id)
        .where(ProjectMember.project_id == project_id)
    )
    if after is not None:
        query = query.where(Person.email > plain_address(after))
    rows = session.execute(query.order_by(Person.email).limit(limit)).all()
    return [(member, person) for member, person in rows]


def find_member(session: Session, project_id: str, email: str) -> ProjectMember:
    """Return a member by address; raises MemberNotFound."""
    query = (
        select(ProjectMember)
        .join(Person, Person.id == ProjectMember.person_id)
        .where(ProjectMember.project_id == project_id, Person.email == plain_address(email))
    )
    member = session.scalar(query)
    if member is None:
        raise MemberNotFound(
            f"The project has no member {email!r}: add one with `hillclimb members set`."
        )
    return member


def set_member(
    session: Session, project_id: str, email: str, role: Role, *, actor: str
) -> tuple[ProjectMember, Person]:
    """Invite a person, or change a member's role; a person need not have signed in before."""
    address = plain_address(email)
    named = {"id": new_id("per"), "email": address}
    session.execute(insert(Person).values(**named).on_conflict_do_nothing(index_elements=["email"]))
    person = session.scalars(select(Person).where(Person.email == address)).one()
    member = session.get(ProjectMember, (project_id, person.id), with_for_update=True)
    if member is None:
        member = ProjectMember(
            project_id=project_id, person_id=person.id, role=role.value, added_by=actor
        )
        session.add(member)
    member.role = role.value
    session.flush()
    return member, person


def accept(session: Session, project_id: str, person_id: str, *, now: datetime) -> None:
    """Accept an invitation, as the person; idempotent. Raises SignInFailed without one."""
    member = session.get(ProjectMember, (project_id, person_id), with_for_update=True)
    if member is None:
        raise SignInFailed("You are no member of this project: ask one of its admins.")
    if member.accepted_at is None:
        member.accepted_at = now
    session.flush()


def remove_member(session: Session, project_id: str, email: str) -> None:
    """Remove a member; their keys and sessions in the project end. Raises MemberNotFound."""
    session.delete(find_member(session, project_id, email))
    session.flush()


def roles_of(session: Session, person_id: str, *, limit: int) -> Sequence[ProjectMember]:
    """Return a person's memberships and invitations, the oldest first."""
    order = tuple_(ProjectMember.created_at, ProjectMember.project_id)
    query = (
        select(ProjectMember)
        .where(ProjectMember.person_id == person_id)
        .order_by(order)
        .limit(limit)
    )
    return session.scalars(query).all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A project that has added a person who has not joined it yet."""

    project_id: str
    project_name: str
    role: str
    added_by: str


def invitations_of(session: Session, roles: Sequence[ProjectMember]) -> list[Invitation]:
    """Return what people see of projects that have added them."""
    ids = [each.project_id for each in roles]
    names = {
        each.id: each.name for each in session.scalars(select(Project).where(Project.id.in_(ids)))
    }
    return [
        Invitation(
            project_id=each.project_id,
            project_name=names[each.project_id],
            role=each.role,
            added_by=each.added_by,
        )
        for each in roles
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedIdentity:
    """A person as the provider of identities has confirmed them."""

    issuer: str
    subject: str
    """The provider's own name for the person, which never changes."""
    email: str | None
    """The address that the provider has verified; null without one."""
    name: str | None


def sign_in(session: Session, identity: ConfirmedIdentity, *, now: datetime) -> Person:
    """Return the person of a confirmed identity.

    The first sign-in binds the
    person who was added under that address to the provider's subject; from then on only that
    subject is the person, whatever address it has. Raises SignInFailed for people whom no project
    has added.
    """
    known = (Person.issuer == identity.issuer, Person.subject == identity.subject)
    person = session.scalar(select(Person).where(*known).with_for_update())
    if person is None and identity.email is not None:
        unbound = (Person.email == plain_address(identity.email), Person.subject.is_(None))
        person = session.scalar(select(Person).where(*unbound).with_for_update())
    if person is None:
        raise SignInFailed(
            "No project has added you, or your provider has not verified your address: ask an"
            " admin for `hillclimb members set ADDRESS`."
        )
    person.issuer, person.subject, person.last_login_at = identity.issuer, identity.subject, now
    person.name = (identity.name or person.name or "")[:200] or None
    session.flush()
    return person


def end_session(session: Session, project_id: str, ended: BrowserSession) -> None:
    """End one browser session of a project; idempotent."""
    row = {"sha256": ended.sha256, "project_id": project_id, "expires_at": ended.expires_at}
    session.execute(insert(EndedSession).values(**row).on_conflict_do_nothing())


def check_session(session: Session, opened: BrowserSession, person_id: str | None) -> None:
    """Raise NotAuthenticated where the session, or every session of its person, was ended."""
    person = None
    if opened.since is not None and person_id is not None:
        person = session.get(Person, person_id)
    ended = person.sessions_since if person is not None else None
    is_before = ended is not None and opened.since is not None and opened.since < ended
    if is_before or session.get(EndedSession, opened.sha256) is not None:
        raise NotAuthenticated("The session has ended: sign in again.")


def end_sessions(session: Session, person_id: str, *, now: datetime) -> None:
    """End every browser session of a person that is open now."""
    person = session.get_one(Person, person_id)
    person.sessions_since = now


def look_up_again(session: Session, caller: Principal, *, now: datetime) -> Principal:
    """Return a caller who was admitted before as of now; raises NotAuthenticated."""
    if caller.session is not None:
        check_session(session, caller.session, caller.person_id)
    if caller.key_id is None:
        return principal_of_person(session, caller.project_id, str(caller.person_id))
    key = session.get(ApiKey, caller.key_id)
    if key is None:
        raise NotAuthenticated("The API key was deleted.")
    return principal_of(session, key, now=now)
