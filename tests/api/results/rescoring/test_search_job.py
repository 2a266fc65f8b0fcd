"""The pattern search's process from the inside: files, patterns, and what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from api.results.rescoring import process, search_job
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION
from tests.api.results.rescoring.test_search import line_of

FILE = "step-0.jsonl.gz"


def searched(folder: Path, lines: list[str], files: dict[str, list[int]]) -> dict[str, Any]:
    (folder / FILE).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    rollouts = {
        name: [
            {"rollout_id": f"rollout-{number}", "line": number, "pass_threshold": 1.0}
            for number in numbers
        ]
        for name, numbers in files.items()
    }
    (folder / process.JOB).write_text(json.dumps({"files": rollouts}))
    assert search_job.main(folder) == 0
    found: dict[str, Any] = json.loads((folder / process.RESULT).read_text())
    assert found["version"] == PATTERNS_VERSION
    return {each.pop("rollout_id"): each for each in found["results"]}


def test_a_repeated_call_is_found_and_one_below_the_limit_is_not(tmp_path: Path) -> None:
    lines = [json.dumps(line_of(number, repeats=repeats)) for number, repeats in ((0, 3), (1, 2))]
    found = searched(tmp_path, lines, {FILE: [0, 1]})
    assert "tool_repetition" in found["rollout-0"]["patterns"]
    assert "tool_repetition" not in found["rollout-1"]["patterns"]
    assert {each["reason"] for each in found.values()} == {None}


def test_what_is_missing_or_no_trajectory_has_a_reason(tmp_path: Path) -> None:
    lines = [json.dumps(line_of(0, repeats=3)), '{"task": 1}']
    found = searched(tmp_path, lines, {FILE: [1, 2]})
    assert found["rollout-1"] == {"patterns": None, "reason": search_job.UNREADABLE}
    assert found["rollout-2"] == {"patterns": None, "reason": search_job.NO_FILE}
