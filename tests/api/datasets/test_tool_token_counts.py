"""What runs of a project measured of an environment's tools."""

from __future__ import annotations

import pytest

from api.datasets.tool_token_counts import tool_token_counts, tools_in_project
from api.tables import Run
from api.tables.database import Database
from hillclimb.protocol.events import PromptsRendered
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)


def _without_kind(run: Run) -> None:
    run.spec = {key: value for key, value in run.spec.items() if key != "kind"}


def test_runs_from_before_there_were_kinds_count_too(stage: Stage) -> None:
    tokens = {"min": 1, "median": 2, "max": 300}
    booking = {
        "digest": "a" * 64,
        "num_tasks": 1,
        "num_tools": 7,
        "num_counted": 1,
        "num_too_long": 0,
        "longest_task": "booking-1",
        **{f"{part}_tokens": tokens for part in ("system", "tools", "task", "total")},
    }
    told = PromptsRendered.model_validate(
        {
            "trainer_seq": 2,
            "at": make.AT,
            "step": 0,
            "version": "1",
            "max_input_length": 400,
            "environments": {"booking": booking},
            "file": "prompts.gz",
        }
    )
    run_id, _, plan = stage.running(told)
    stage.change(run_id, _without_kind)
    with stage.database.transaction() as session:
        (found,) = tools_in_project(session, PROJECT, "fleet").values()
        assert tool_token_counts(session, PROJECT, plan.spec) == {"booking": found}
    assert found.tokens == 300
    assert found.source == f"counted by {run_id} (train, {plan.spec.model.source})"
