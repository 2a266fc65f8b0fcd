"""The service's role in the database: it reads and writes rows, and can change no table.

Migrations run as the owner of the tables (`HILLCLIMB_OWNER_DATABASE_URL`); API, worker and beat
connect with `DATABASE_URL`. Whoever finds a way to run SQL through one of them can then drop no
table, create no function, read no file of the server, make no other role, and change no record of
the audit.
"""

from __future__ import annotations

from psycopg import Connection as Psycopg
from sqlalchemy import Connection, make_url, text

OWNER_URL_VARIABLE = "HILLCLIMB_OWNER_DATABASE_URL"
OF_MIGRATIONS = ("alembic_version", "schema_revisions")
"""Tables that only migrations write."""
APPEND_ONLY = ("audit_records",)
"""Tables whose rows the service writes once and reads."""
RIGHTS = "SELECT, INSERT, UPDATE, DELETE, MAINTAIN"
"""MAINTAIN is ANALYZE, which a rescoring does before it compares what it has written."""


def grant(connection: Connection, url: str) -> None:
    """Create the role that `url` names if there is none, and let it use every table.

    Its password is the one of `url`, sent as a SCRAM verifier: no log of the server has it. Does
    nothing where `url` names the owner itself.

    Raises:
        ValueError: `url` has no user or no password.
    """
    parsed = make_url(url)
    user, password = parsed.username, parsed.password
    if not user or not password:
        raise ValueError("DATABASE_URL needs a user and a password: those of the service's role")
    if connection.scalar(text("SELECT current_user")) == user:
        return
    role = connection.dialect.identifier_preparer.quote(user)
    database = connection.dialect.identifier_preparer.quote(
        str(connection.scalar(text("SELECT current_database()")))
    )
    exists = connection.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :r"), {"r": user})
    statements = [
        *([] if exists else [f"CREATE ROLE {role}"]),
        f"ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
        f" PASSWORD '{_verifier(connection, user, password)}'",
        f"GRANT CONNECT ON DATABASE {database} TO {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        f"GRANT {RIGHTS} ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
        *(f"REVOKE INSERT, UPDATE, DELETE ON {table} FROM {role}" for table in OF_MIGRATIONS),
        *(f"REVOKE UPDATE, DELETE ON {table} FROM {role}" for table in APPEND_ONLY),
    ]
    for statement in statements:
        connection.exec_driver_sql(statement)


def _verifier(connection: Connection, user: str, password: str) -> str:
    """Return what PostgreSQL stores of a password: base64 and signs without a quote."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, Psycopg)
    return driver.pgconn.encrypt_password(
        password.encode(), user.encode(), b"scram-sha-256"
    ).decode()
