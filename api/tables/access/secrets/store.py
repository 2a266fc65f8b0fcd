"""Reads and writes the secrets of projects, and returns those of a run to its attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import cast, func, select, update
from sqlalchemy.dialects.postgresql import JSONPATH, insert
from sqlalchemy.orm import Session

from api.tables.access.identity import Principal
from api.tables.access.secrets.errors import (
    SecretInUse,
    SecretMissing,
    SecretNotFound,
    SecretRejected,
)
from api.tables.access.secrets.hosts import refuse_foreign_hosts
from api.tables.access.secrets.keyring import Encrypted, Keyring, Place
from api.tables.access.secrets.request import MAX_VALUE_BYTES, MIN_VALUE_CHARS
from api.tables.projects import ProjectSecret
from api.tables.training.runs import Run
from hillclimb.spec.run import RunSpec

MAX_SECRETS = 200
"""Secrets of one project."""


def set_secret(  # noqa: PLR0913 (one per column)
    session: Session,
    keyring: Keyring,
    caller: Principal,
    *,
    name: str,
    value: str,
    now: datetime,
    hosts: Sequence[str] | None = None,
) -> ProjectSecret:
    """Create the secret in the caller's project, or replace its value; raises SecretRejected.

    `hosts` replace those to which it may be sent; null keeps them. They change with the value
    alone: who does not know it cannot have it sent elsewhere.
    """
    project_id, actor = caller.project_id, caller.actor
    _check_value(value)
    _check_number(session, project_id, name)
    encrypted = keyring.encrypt(value, _place(project_id, name))
    changed = {
        "key_id": encrypted.key_id,
        "ciphertext": encrypted.ciphertext,
        "updated_by": actor,
        "updated_at": now,
    }
    if hosts is not None:
        changed["hosts"] = sorted(set(hosts))
    statement = insert(ProjectSecret).values(
        project_id=project_id, name=name, version=1, created_by=actor, created_at=now, **changed
    )
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["project_id", "name"],
            set_=changed | {"version": ProjectSecret.version + 1},
        )
    )
    return session.get_one(ProjectSecret, (project_id, name), populate_existing=True)


def list_secrets(session: Session, project_id: str) -> list[ProjectSecret]:
    """Return the project's secrets by name."""
    query = select(ProjectSecret).where(ProjectSecret.project_id == project_id)
    return list(session.scalars(query.order_by(ProjectSecret.name).limit(MAX_SECRETS)))


def delete_secret(session: Session, project_id: str, name: str) -> None:
    """Delete the secret.

    Its row is locked before the runs are read, and submission locks it too: no run that names it
    can appear between the two.

    Raises:
        SecretNotFound: the project has none of that name.
        SecretInUse: a run that has not ended names it.
    """
    query = select(ProjectSecret).where(
        ProjectSecret.project_id == project_id, ProjectSecret.name == name
    )
    secret = session.scalar(query.with_for_update())
    if secret is None:
        raise SecretNotFound(f"This project has no secret {name!r}.")
    path = cast("$.secrets.* ? (@ == $name)", JSONPATH)
    user = session.scalar(
        select(Run.id)
        .where(Run.project_id == project_id, Run.ended_at.is_(None))
        .where(func.jsonb_path_exists(Run.spec, path, func.jsonb_build_object("name", name)))
        .limit(1)
    )
    if user is not None:
        raise SecretInUse(
            f"Run {user} has not ended and names the secret {name!r}: cancel the run first, or"
            f" replace the value with `hillclimb secrets set {name}`."
        )
    session.delete(secret)


def reencrypt(session: Session, keyring: Keyring, project_id: str) -> int:
    """Encrypt the project's values with the newest master key; return the number of changed ones.

    Raises SecretUnreadable, and then changes none.
    """
    query = select(ProjectSecret).where(
        ProjectSecret.project_id == project_id, ProjectSecret.key_id != keyring.newest
    )
    old = list(session.scalars(query.limit(MAX_SECRETS).with_for_update()))
    for secret in old:
        place = _place(project_id, secret.name)
        encrypted = keyring.encrypt(keyring.decrypt(_encrypted(secret), place), place)
        secret.key_id, secret.ciphertext = encrypted.key_id, encrypted.ciphertext
    return len(old)


def require_secrets(session: Session, spec: RunSpec, project_id: str) -> None:
    """Refuse a spec that names a secret which the project lacks, or sends one to a foreign host.

    Locks those that it names. Raises SecretMissing and SecretNotForHost.
    """
    named = _named(spec)
    hosts = require_names(
        session, project_id, {f"secrets.{key}": name for key, name in named.items()}
    )
    refuse_foreign_hosts(spec, {variable: (name, hosts[name]) for variable, name in named.items()})


def require_names(
    session: Session, project_id: str, named: Mapping[str, str]
) -> dict[str, Sequence[str]]:
    """Refuse names of secrets that the project lacks, by the key that has the name; locks the rest.

    Returns the hosts of each. Raises SecretMissing.
    """
    if not named:
        return {}
    query = select(ProjectSecret.name, ProjectSecret.hosts).where(
        ProjectSecret.project_id == project_id, ProjectSecret.name.in_(set(named.values()))
    )
    # In one order: submissions beside each other that name the same secrets wait, and no more.
    query = query.order_by(ProjectSecret.name)
    rows = session.execute(query.with_for_update(key_share=True)).all()
    present: dict[str, Sequence[str]] = {row.name: row.hosts for row in rows}
    for key, name in named.items():
        if name not in present:
            raise SecretMissing(
                f"{key} names the secret {name!r}, which this project does not have: create it with"
                f" `hillclimb secrets set {name}`"
            )
    return present


def secrets_of(
    session: Session, keyring: Keyring, spec: RunSpec, *, project_id: str, now: datetime
) -> dict[str, str]:
    """Return the variables of a run's trainer with their values, for its attempt alone.

    Raises SecretMissing, SecretNotForHost and SecretUnreadable.
    """
    named = _named(spec)
    if not named:
        return {}
    where = (ProjectSecret.project_id == project_id, ProjectSecret.name.in_(set(named.values())))
    rows = {secret.name: secret for secret in session.scalars(select(ProjectSecret).where(*where))}
    require_secrets(session, spec, project_id)
    session.execute(update(ProjectSecret).where(*where).values(used_at=now))
    return {
        variable: keyring.decrypt(_encrypted(rows[name]), _place(project_id, name))
        for variable, name in named.items()
    }


def _named(spec: RunSpec) -> Mapping[str, str]:
    return {variable: name for variable, name in spec.secrets.items() if name is not None}


def _place(project_id: str, name: str) -> Place:
    return Place(purpose="secret", project_id=project_id, name=name)


def _encrypted(secret: ProjectSecret) -> Encrypted:
    return Encrypted(key_id=secret.key_id, ciphertext=secret.ciphertext)


def _check_value(value: str) -> None:
    if len(value) < MIN_VALUE_CHARS:
        raise SecretRejected(
            f"The value has fewer than {MIN_VALUE_CHARS} characters: too short to be redacted from"
            " logs."
        )
    if len(value.encode(errors="replace")) > MAX_VALUE_BYTES:
        raise SecretRejected(f"The value has more than {MAX_VALUE_BYTES} bytes.")
    if "\0" in value:
        raise SecretRejected("The value contains U+0000, which no environment variable can.")


def _check_number(session: Session, project_id: str, name: str) -> None:
    where = (ProjectSecret.project_id == project_id, ProjectSecret.name != name)
    number = session.scalar(select(func.count()).select_from(ProjectSecret).where(*where)) or 0
    if number >= MAX_SECRETS:
        raise SecretRejected(
            f"The project has {MAX_SECRETS} secrets, the most it can: delete one with"
            " `hillclimb secrets delete NAME`."
        )
