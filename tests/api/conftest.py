"""Fixtures that every test of the service may use."""

from tests.api.migrated import database, database_url

__all__ = ["database", "database_url"]
