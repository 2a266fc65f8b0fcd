"""Runs migrations as the owner of the tables, and lets the service's role use them.

The owner is that of `HILLCLIMB_OWNER_DATABASE_URL`; without it, `DATABASE_URL` names both. A URL
that a caller put into the configuration is the owner's, and no role is changed.
"""  # noqa: INP001

import os
import sys
from typing import Any

from alembic import context
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, pool, text

from api.tables import Base
from api.tables.database import has_history, outdated_fault, read_schema, revision_fault
from api.tables.service_role import OWNER_URL_VARIABLE, grant

MIGRATION_LOCK = 0x48494C4C
"""Advisory lock: two processes that migrate at once take turns."""


def run() -> None:
    """Bring the database to the requested revision in one transaction.

    Raises CommandError, which Alembic prints as a sentence, for a database that is too old.
    """
    url = context.config.get_main_option("sqlalchemy.url")
    owner_url = os.environ.get(OWNER_URL_VARIABLE)
    service_url = os.environ["DATABASE_URL"] if owner_url and not url else None
    url = url or owner_url or os.environ["DATABASE_URL"]
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        schema = read_schema(connection)
        fault = outdated_fault(schema.revision)
        if fault is not None:
            raise CommandError(fault)
        if schema.revision is not None and not _is_known(schema.revision):
            if fault := revision_fault(schema):
                raise CommandError(fault)
            sys.stderr.write(f"{schema.revision} is newer than this version: nothing to migrate\n")
        else:
            _migrate(connection)
        if service_url is not None:
            grant(connection, service_url)


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_server_default=True,
        on_version_apply=record,
    )
    context.run_migrations()


def _is_known(revision: str) -> bool:
    try:
        return context.script.get_revision(revision) is not None
    except (CommandError, ResolutionError):
        return False


def record(*, ctx: Any, step: Any, **_: object) -> None:  # noqa: ANN401 (Alembic's own types)
    """Keep `schema_revisions` at what the database has gone through, since there is that table."""
    connection: Connection = ctx.connection
    if not has_history(connection):
        return
    statement = (
        "INSERT INTO schema_revisions (revision) VALUES (:revision)"
        if step.is_upgrade
        else "DELETE FROM schema_revisions WHERE revision = :revision"
    )
    connection.execute(text(statement), {"revision": step.up_revision_id})


run()
