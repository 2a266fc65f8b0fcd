"""What the process that reads files of tasks hands back can be stored, whatever the file holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from api.datasets.work.job import Rejected
from api.datasets.work.job import build as run_build
from hillclimb.datasets.format.rows import json_fault
from tests.api.datasets.samples import lines, task, tasks
from tests.hillclimb.datasets.fuzz import junk_files

JOB: dict[str, Any] = {
    "options": {},
    "exclusions": [],
    "lineage": [],
    "max_unpacked_mb": 100,
    "now": "2026-03-01T00:00:00+00:00",
}
"""Of a first version with the default options."""


def build(folder: Path, source: bytes, **job: Any) -> dict[str, Any]:
    """Do what the process does with a file, or return how it refuses."""
    (folder / "source").write_bytes(source)
    try:
        return run_build(folder, JOB | job)
    except Rejected as refusal:
        return {"message": str(refusal), "problems": refusal.problems}


def test_names_of_unknown_fields_are_stored_as_they_can_be_shown(tmp_path: Path) -> None:
    """A NUL, half a surrogate pair and a name of a megabyte are refused by the database."""
    bad = task("booking", 0) | {"a\0b": 1, "\ud800": 1, "x" * 1_000_000: 1, "team_id": 7}
    made = build(tmp_path, lines([bad, *tasks(github=9)]))
    assert made["ignored_fields"] == {
        "a\\x00b": 1,
        "\\ud800": 1,
        "x" * 79 + "…": 1,
        "team_id": 1,
    }
    assert json_fault(json.loads(json.dumps(made))) is None


def test_whatever_a_file_holds_the_answer_can_be_stored(tmp_path: Path) -> None:
    num_made = 0
    for source in junk_files(seed=4):
        found = build(tmp_path, source)
        num_made += "digest" in found
        answer = json.dumps(found)
        assert json_fault(json.loads(answer)) is None, answer[:1000]
    assert num_made > 10, "some of the files are good"
