"""Status has one writer, and every change leaves an event."""

import ast
from pathlib import Path

import pytest

from api.runs.errors import InvalidTransition
from api.runs.status import TRANSITIONS, RunStatus
from api.runs.store import lock_run
from api.runs.transitions import move
from tests.api.fixtures.stage import Stage

ROOT = Path(__file__).parents[3]
WRITER = ROOT / "api/runs/transitions.py"
ALLOWED = {
    ROOT / "api/tables/access/idempotency.py",  # the HTTP status of a stored answer
}


def assigns_status(source: str) -> bool:
    targets = [
        target
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return any(isinstance(t, ast.Attribute) and t.attr == "status" for t in targets)


def test_only_one_file_assigns_a_status() -> None:
    files = [path for folder in ("api", "worker") for path in (ROOT / folder).rglob("*.py")]
    found = {path for path in files if assigns_status(path.read_text())}
    assert found - ALLOWED == {WRITER}


@pytest.mark.parametrize("before", sorted(RunStatus))
def test_every_step_is_allowed_or_refused_as_the_table_says(
    stage: Stage, before: RunStatus
) -> None:
    run_id = stage.submit()
    stage.change(run_id, lambda run: setattr(run, "status", before.value))
    for after in RunStatus:
        num_events = len(stage.events(run_id))
        with stage.database.transaction() as session:
            run = lock_run(session, run_id)
            if after not in TRANSITIONS[before]:
                with pytest.raises(InvalidTransition, match="cannot become"):
                    move(session, run, after, now=stage.now)
                continue
            move(session, run, after, now=stage.now)
        event = stage.events(run_id)[-1]
        assert (event.type, event.data) == (
            "run.status_changed",
            {"from": before.value, "to": after.value},
        )
        assert len(stage.events(run_id)) == num_events + 1
        stage.change(run_id, lambda run: setattr(run, "status", before.value))
