"""Searches recorded rollouts for patterns: `python -m api.results.rescoring.search_job FOLDER`.

The process reads `job.json` and the trajectory files in the folder, and writes `result.json` there.
It uses neither the database nor the blob store, and runs no code but that of the detectors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.results.rescoring.files import read_lines
from api.results.rescoring.process import JOB, RESULT
from hillclimb.protocol.payloads.results.rollouts import StoredConversation
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION, detect_patterns
from hillclimb.stats.trajectories.stored import conversation_of

NO_FILE, UNREADABLE = "no_trajectory", "unreadable_trajectory"


def main(folder: Path) -> int:
    """Search every rollout of the job; return the exit code."""
    job = json.loads((folder / JOB).read_text())
    results = list(_search_all(folder, job["files"]))
    (folder / RESULT).write_text(json.dumps({"version": PATTERNS_VERSION, "results": results}))
    return 0


def _search_all(
    folder: Path, files: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[dict[str, Any]]:
    for name, rollouts in files.items():
        lines = read_lines(folder / name, {rollout["line"] for rollout in rollouts})
        for rollout in rollouts:
            line = lines.get(rollout["line"])
            yield {
                "rollout_id": rollout["rollout_id"],
                **_search(line, pass_threshold=rollout["pass_threshold"]),
            }


def _search(line: bytes | None, *, pass_threshold: float) -> dict[str, Any]:
    """Return the names of the patterns, or the reason why there are none."""
    if line is None:
        return {"patterns": None, "reason": NO_FILE}
    try:
        stored = StoredConversation.model_validate_json(line)
    except ValidationError:
        return {"patterns": None, "reason": UNREADABLE}
    conversation = conversation_of(stored, pass_threshold=pass_threshold)
    return {"patterns": list(detect_patterns(conversation)), "reason": None}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
