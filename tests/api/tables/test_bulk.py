"""Rows written in one statement are the rows that a statement each would have written."""

import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, DateTime, Float, Integer, Table, event, insert
from sqlalchemy import text as sql
from sqlalchemy.exc import DataError, IntegrityError

from api.tables import (
    Base,
    Checkpoint,
    ComputeRecord,
    Eval,
    Metric,
    OutcomeRecord,
    Run,
    RunEvent,
    StepSignalRecord,
)
from api.tables.bulk import MANY_ROWS, Following, insert_followed, insert_rows, upsert_rows
from api.tables.database import Database
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make

MODELS = (Checkpoint, ComputeRecord, Eval, Metric, OutcomeRecord, RunEvent, StepSignalRecord)
WORDS = ("", "a", "NULL", "null", '"', "\\", "{}", ",", "'", "%s", "\n", "ü€🐍", "x" * 3_000)
DOCUMENTS: tuple[Any, ...] = (None, {}, [], {"a": None}, ["NULL", 'x"y', 1.5], {"ü": {"b": [1]}})


def table_of(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table


def value(rng: random.Random, model: type[Base], name: str, number: int) -> Any:
    column = table_of(model).columns[name]
    if column.nullable and rng.random() < 0.3:
        return None
    if isinstance(column.type, JSON):
        return rng.choice(DOCUMENTS)
    if isinstance(column.type, Boolean):
        return rng.random() < 0.5
    if isinstance(column.type, BigInteger):
        return rng.choice((0, 2**62, rng.randrange(10**12)))
    if isinstance(column.type, Integer):
        # Unique where it is a part of a key, of every size.
        return rng.choice((number, 1_000 + number, 100_000 + number, 2**31 - 1 - number))
    if isinstance(column.type, Float):
        return rng.choice((0, 1, 0.1, -1e300, 5e-324, float("inf"), rng.random()))
    if isinstance(column.type, DateTime):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(10**15))
    return (
        f"{number}{rng.choice(WORDS)}" if column.primary_key or column.unique else rng.choice(WORDS)
    )


def stored(database: Database, model: type[Base]) -> list[str]:
    """Every row as PostgreSQL writes it, which tells NULL from JSON's null."""
    with database.transaction() as session:
        return sorted(session.scalars(sql(f"SELECT t::text FROM {table_of(model).name} t")))


def erase(database: Database, model: type[Base]) -> None:
    with database.transaction() as session:
        session.execute(table_of(model).delete())


@pytest.mark.parametrize("model", MODELS)
def test_one_statement_writes_what_a_statement_per_row_writes(
    stage: Stage, model: type[Base]
) -> None:
    rng, run_id = random.Random(model.__name__), stage.submit()
    names = table_of(model).columns.keys()
    rows = [
        {name: value(rng, model, name, number) for name in names} | {"run_id": run_id}
        for number in range(200)
    ]
    erase(stage.database, model)
    with stage.database.transaction() as session:
        session.execute(insert(table_of(model)), rows)
    expected = stored(stage.database, model)
    for write in (insert_rows, upsert_rows):
        erase(stage.database, model)
        with stage.database.transaction() as session:
            write(session, model, rows)
        assert stored(stage.database, model) == expected
    with stage.database.transaction() as session:
        upsert_rows(session, model, rows[::-1])
    assert stored(stage.database, model) == expected


def test_the_last_row_of_a_key_wins_and_replaces_what_is_stored(stage: Stage) -> None:
    key = {"run_id": stage.submit(), "decoding": "train", "step": 1, "attempt": 1}
    for first, last in ((1.0, 2.0), (3.0, 4.0)):
        rows = [{**key, "name": "loss", "value": value} for value in (first, last)]
        with stage.database.transaction() as session:
            upsert_rows(session, Metric, iter(rows))
        assert [metric.value for metric in stage.rows(Metric)] == [last]


def test_many_rows_of_which_one_is_stored_replace_it_and_undo_nothing_else(stage: Stage) -> None:
    key = {"run_id": stage.submit(), "decoding": "train", "step": 1, "attempt": 1}
    rows = [{**key, "name": f"{number:03}", "value": float(number)} for number in range(MANY_ROWS)]
    with stage.database.transaction() as session:
        upsert_rows(session, Metric, [rows[7] | {"value": -1.0}])
    with stage.database.transaction() as session:
        upsert_rows(session, Metric, [rows[0] | {"name": "before"}])
        upsert_rows(session, Metric, rows)
    values = {metric.name: metric.value for metric in stage.rows(Metric)}
    assert values == {row["name"]: row["value"] for row in rows} | {"before": 0.0}


def test_many_rows_that_break_another_rule_are_an_integrity_error(stage: Stage) -> None:
    step = {"run_id": "run_none", "attempt": 1, "size_bytes": 1}
    step |= {"manifest_sha256": "0", "final": False, "saved_at": stage.now, "deleted_at": None}
    rows = [{**step, "step": number, "path": f"p{number}"} for number in range(MANY_ROWS)]
    with (
        pytest.raises(IntegrityError, match="foreign key"),
        stage.database.transaction() as session,
    ):
        upsert_rows(session, Checkpoint, rows)


def test_no_rows_are_no_statement(stage: Stage) -> None:
    with stage.database.transaction() as session:
        upsert_rows(session, Metric, [])
    assert stage.rows(Metric) == []


def test_a_value_that_cannot_be_stored_is_a_data_error(stage: Stage) -> None:
    row = {"run_id": stage.submit(), "name": "a\x00", "decoding": "train", "step": 1, "attempt": 1}
    for change in ({"value": 1.0}, {"name": "a", "step": 2**70, "value": 1.0}):
        with pytest.raises(DataError), stage.database.transaction() as session:
            insert_rows(session, Metric, [row | change])


def copy_of(stage: Stage, run_id: str, name: str) -> tuple[Run, dict[str, Any]]:
    """A run that no session has, with the values of a submitted one, and an event of it."""
    with stage.database.transaction() as session:
        row = session.execute(sql("SELECT * FROM runs WHERE id = :id"), {"id": run_id}).one()
    known = {key: value for key, value in row._mapping.items() if value is not None}
    del known["queue_class"]
    run = Run(**known | {"id": name, "name": f'"ü" {{}} {name}'})
    facts = {"seq": 1, "type": "run.created", "at": stage.now, "actor": "key:me", "data": {}}
    return run, {**facts, "run_id": name, "id": f"evt_{name}"}


NOTHING = Following(
    sql="SELECT seq FROM stored WHERE seq = %s::int", parameters=("1",), returning=("seq",)
)


def test_a_record_stored_with_its_rows_is_what_a_flush_stores(stage: Stage) -> None:
    template = stage.submit()
    flushed, _ = copy_of(stage, template, "run_a")
    owner, row = copy_of(stage, template, "run_b")
    with stage.database.transaction() as session:
        session.add(flushed)
    with stage.database.transaction() as session:
        insert_followed(session, RunEvent, [row], NOTHING, owner=owner)
        assert session.get(Run, "run_b") is owner
        assert owner.queue_class == "runner"
    assert (owner.end_code, owner.origin, owner.tags) == (None, None, [])
    _, of_a, of_b = sorted(stored(stage.database, Run), key=lambda line: "run_b" in line)
    assert of_a.replace("run_a", "run_b") == of_b


def test_a_record_stored_with_its_rows_is_changed_by_the_next_flush(stage: Stage) -> None:
    owner, row = copy_of(stage, stage.submit(), "run_b")
    with stage.database.transaction() as session:
        insert_followed(session, RunEvent, [row], NOTHING, owner=owner)
        owner.note = "later"
    assert sorted(str(run.note) for run in stage.rows(Run)) == ["None", "later"]


def test_a_record_whose_rows_are_refused_is_not_stored(stage: Stage) -> None:
    owner, row = copy_of(stage, stage.submit(), "run_b")
    with pytest.raises(IntegrityError), stage.database.transaction() as session:
        insert_followed(session, RunEvent, [row, row], NOTHING, owner=owner)
    assert [run.id for run in stage.rows(Run)] != ["run_b"]
    assert len(stage.rows(Run)) == 1


def test_a_step_is_one_statement_per_table(stage: Stage) -> None:
    _, _, plan = stage.running()
    rows = tuple(make.outcome(f"r{number}") for number in range(160))
    metrics = {f"metric/{number}": float(number) for number in range(219)}
    executed: list[tuple[str, bool]] = []

    def note(*call: Any) -> None:
        executed.append((call[2], call[5]))

    engine = stage.database._engine
    event.listen(engine, "before_cursor_execute", note)
    stage.push(plan, make.step(2, 1, *rows, metrics=metrics), make.phase(3))
    event.remove(engine, "before_cursor_execute", note)
    assert not any(is_many for _, is_many in executed)
    written = [name for each, _ in executed for name in re.findall(r"INSERT INTO (\w+)", each)]
    assert sorted(written) == ["events", "metrics", "outcomes", "step_signals"]
    careful = [each for each, _ in executed if "ON CONFLICT" in each]
    assert not any("INTO metrics" in each for each in careful)
