from tests.api.fixtures.migrated import database, database_url

__all__ = ["database", "database_url"]
