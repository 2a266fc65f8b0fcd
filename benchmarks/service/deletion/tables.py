"""The time that PostgreSQL takes to delete 2,000 runs, without and with indexes of foreign keys.

    .venv/bin/python -m benchmarks.service.deletion.tables

PostgreSQL runs as `hillclimb up` starts it. Of 22,000 runs of one project, 20,000 each have a cell
of a campaign and an issue; the others have no row left that names them and are deleted, once at
revision 1023 and once at the newest one. What is measured is the look whether a row still names
them. Each deletion is rolled back. Writes `benchmarks/results/deletion.json`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import psycopg
from alembic import command

from api.tables import Run
from api.tables.database import Database
from benchmarks.service.outcomes import postgres
from tests.api.fixtures.story import PROJECT, Story
from tests.fixtures.migrated import alembic_config

RESULT = Path(__file__).parents[2] / "results" / "deletion.json"
NUM_KEPT, NUM_DELETED = 20_000, 2_000
BEFORE = "1023"
COLUMNS = ", ".join(c.name for c in Run.__table__.columns if c.computed is None)
RUNS = f"""
INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM (
    SELECT (jsonb_populate_record(r, jsonb_build_object('id', %(id)s || n))).*
    FROM runs r, generate_series(1, %(number)s) n WHERE r.id = %(run)s) copies
"""
CELLS = """
INSERT INTO campaign_cells (project_id, digest, spec, run_id, num_launches)
SELECT project_id, id, '{}', id, 1 FROM runs WHERE id LIKE 'kept_%'
"""
ISSUES = """
INSERT INTO issues SELECT (jsonb_populate_record(NULL::issues, jsonb_build_object(
  'id', id, 'project_id', project_id, 'number', row_number() OVER (), 'title', '', 'severity', '',
  'description', '', 'impact', '', 'symptom', '', 'baseline_run_id', id, 'baseline_step', 0,
  'created_by', '', 'created_at', now(), 'updated_at', now()))).*
FROM runs WHERE id LIKE 'kept_%'
"""


def main() -> None:
    """Measure, print both times, and write them."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        Path(folder).chmod(0o755)  # the server's account has to enter it
        with postgres(Path(folder)) as server:
            configuration = alembic_config(server.url())
            command.upgrade(configuration, BEFORE)
            fill(server.url())
            before = deletion_s(server.url())
            command.upgrade(configuration, "head")
            after = deletion_s(server.url())
    facts: dict[str, object] = {"kept": NUM_KEPT, "deleted": NUM_DELETED, "cores": os.cpu_count()}
    facts |= {"without_indexes_s": round(before, 3), "with_indexes_s": round(after, 3)}
    print(json.dumps(facts, indent=1))
    RESULT.write_text(json.dumps(facts, indent=1) + "\n")


def fill(url: str) -> None:
    """Submit a run, and copy its row with cells and issues."""
    database = Database(url)
    story = Story(database)
    story.prepare()
    run_id = story.submit(project_id=PROJECT)
    database.close()
    with psycopg.connect(_plain(url)) as connection:
        for prefix, number in (("kept_", NUM_KEPT), ("deleted_", NUM_DELETED)):
            connection.execute(RUNS, {"id": prefix, "number": number, "run": run_id})
        connection.execute(CELLS)
        connection.execute(ISSUES)


def deletion_s(url: str) -> float:
    """Return the seconds of deleting the runs that nothing names."""
    with psycopg.connect(_plain(url), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    with psycopg.connect(_plain(url)) as connection:
        began = time.perf_counter()
        deleted = connection.execute("DELETE FROM runs WHERE id LIKE 'deleted_%'")
        took = time.perf_counter() - began
        assert deleted.rowcount == NUM_DELETED, deleted.rowcount
        connection.rollback()
    return took


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


if __name__ == "__main__":
    main()
