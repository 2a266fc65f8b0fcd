"""Runs migrations as the owner of the tables, and lets the service's role use them.

The owner is that of `HILLCLIMB_OWNER_DATABASE_URL`; without it, `DATABASE_URL` names both. A URL
that a caller put into the configuration is the owner's, and no role is changed.
"""  # noqa: INP001

import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import create_engine, pool, text

from api.tables import Base
from api.tables.database import outdated_fault, read_revision
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
        fault = outdated_fault(read_revision(connection))
        if fault is not None:
            raise CommandError(fault)
        context.configure(
            connection=connection, target_metadata=Base.metadata, compare_server_default=True
        )
        context.run_migrations()
        if service_url is not None:
            grant(connection, service_url)


run()
