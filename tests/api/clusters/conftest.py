from tests.api.migrated import database, database_url, migrated

__all__ = ["database", "database_url", "migrated"]
