"""Runs migrations against `DATABASE_URL`, or the URL a caller put in the configuration."""  # noqa: INP001

import os

from alembic import context
from sqlalchemy import create_engine, pool, text

from api.tables import Base

MIGRATION_LOCK = 0x48494C4C
"""Advisory lock: two processes that migrate at once take turns."""


def run() -> None:
    """Bring the database to the revision Alembic was asked for, in one transaction."""
    url = context.config.get_main_option("sqlalchemy.url") or os.environ["DATABASE_URL"]
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        context.configure(
            connection=connection, target_metadata=Base.metadata, compare_server_default=True
        )
        context.run_migrations()


run()
