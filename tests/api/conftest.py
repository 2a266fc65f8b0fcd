"""Fixtures that every test of the service may use."""

from tests.api.migrated import database, database_url, migrated

__all__ = ["database", "database_url", "migrated"]
