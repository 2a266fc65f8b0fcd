"""Whether an API process is there, told by the database."""

from __future__ import annotations

from pathlib import Path

from api.database import Database
from api.runs.presence import is_api_there
from hillclimb.stack.poll import wait_until
from tests.api.serving import serve


def is_there(database: Database) -> bool:
    with database.transaction() as session:
        return is_api_there(session)


def test_an_api_is_there_as_long_as_one_of_its_processes_is(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    assert not is_there(database)
    with serve(database_url, database, tmp_path):
        assert wait_until(lambda: is_there(database), deadline_s=10)
        with serve(database_url, database, tmp_path):
            pass
        assert is_there(database)
    assert wait_until(lambda: not is_there(database), deadline_s=10)
