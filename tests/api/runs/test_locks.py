"""Every writer locks rows in one order, so that no two of them can wait for each other."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, func, select, text
from sqlalchemy.engine import Engine

from api.scheduling.outages.extensions import renew_runner_leases
from api.scheduling.runners import get_runner
from api.tables import Attempt, Runner
from api.tables.database import Database
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make

ORDER = ["runners", "runs", "attempts"]
LOCKS = re.compile(r"UPDATE (\w+) SET|INSERT INTO (\w+)|FROM (\w+)[^;]*FOR NO KEY UPDATE")


@contextmanager
def locked_tables() -> Iterator[list[str]]:
    """The tables of `ORDER` in which the block locked rows, by the first lock in each."""
    found: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        match = LOCKS.search(" ".join(statement.split()))
        table = next(filter(None, match.groups())) if match else None
        if table in ORDER and table not in found:
            found.append(table)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_runners_then_runs_then_attempts_are_locked(stage: Stage, database: Database) -> None:
    runner_id = stage.register(slots=2)
    run_id, other_id = stage.submit(), stage.submit()
    stage.advance(run_id, other_id)
    with locked_tables() as by_claim:
        kept = stage.claim(runner_id)
    lost = stage.claim(runner_id)
    assert kept is not None
    assert lost is not None
    with locked_tables() as by_push:
        stage.push(kept, make.started(1))
    stage.later(1)
    with locked_tables() as by_beat:
        stage.beat(runner_id, kept.attempt_id, lost.attempt_id)
    stage.later(1)
    with locked_tables() as by_registering:
        stage.register(slots=2, attempts=(kept.attempt_id,))
    assert stage.status(lost.run_id) == "recovering"
    stage.later(1)
    with locked_tables() as by_forgiving, database.transaction() as session:
        renew_runner_leases(session, now=stage.now)
    with locked_tables() as by_report:
        stage.end(runner_id, kept)
    assert by_claim == by_registering == by_report == ORDER
    assert by_push == ["runs", "attempts"]
    assert by_beat == by_forgiving == ["runners", "attempts"]


def test_a_locked_runner_lets_its_attempt_be_written_twice(
    stage: Stage, database: Database
) -> None:
    """The second write of a row in one transaction checks its foreign keys: a shared row lock."""
    runner_id = stage.register()
    run_id = stage.submit()
    plan = stage.launch(run_id, runner_id)
    with database.transaction() as beating, database.transaction() as pushing:
        get_runner(beating, PROJECT, runner_id)
        pushing.execute(text("SET LOCAL lock_timeout = '500ms'"))
        attempt = pushing.get_one(Attempt, plan.attempt_id)
        for message in ("the first", "the second"):
            attempt.trainer_message = message
            pushing.flush()


def test_first_registrations_at_once_make_one_runner(stage: Stage, database: Database) -> None:
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(stage.register())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6
    assert len(set(ids)) == 1
    with database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Runner)) == 1
