"""Runs migrations against `DATABASE_URL`, or the URL a caller put in the configuration."""  # noqa: INP001

import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import create_engine, pool, text

from api.tables import Base
from api.tables.database import outdated_fault, read_revision

MIGRATION_LOCK = 0x48494C4C
"""Advisory lock: two processes that migrate at once take turns."""


def run() -> None:
    """Bring the database to the requested revision in one transaction.

    Raises CommandError, which Alembic prints as a sentence, for a database that is too old.
    """
    url = context.config.get_main_option("sqlalchemy.url") or os.environ["DATABASE_URL"]
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


run()
