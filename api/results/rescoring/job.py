"""Grades recorded rollouts again: `python -m api.results.rescoring.job FOLDER`.

The process reads `job.json` and the trajectory files in the folder, and writes `result.json` there.
It uses neither the database nor the blob store, and runs no code but that of the miniature apps.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.results.rescoring.files import read_lines
from api.results.rescoring.process import JOB, RESULT
from hillclimb.minifleet.replay import (
    NotReplayable,
    RecordedCall,
    RecordedEpisode,
    replayed_grade,
    verifier_version,
)
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.results.rollouts import StoredTask, StoredTurn

FINISHED = (StopReason.DONE, StopReason.ENV_ENDED)
NEVER_GRADED = (StopReason.INFRA_ERROR, StopReason.NOT_STARTED)
NO_FILE = "no_trajectory"
GRADED, UNGRADED = OutcomeStatus.GRADED.value, OutcomeStatus.UNGRADED.value


class _Recorded(Payload):
    """The parts of a stored trajectory that a replay needs."""

    task: StoredTask
    turns: list[StoredTurn]


def main(folder: Path) -> int:
    """Grade every rollout of the job; return the exit code."""
    job = json.loads((folder / JOB).read_text())
    results = asyncio.run(_grade_all(folder, job))
    graded = {"verifier": verifier_version(), "results": results}
    (folder / RESULT).write_text(json.dumps(graded))
    return 0


async def _grade_all(folder: Path, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    results = []
    for name, rollouts in job["files"].items():
        lines = read_lines(folder / name, {rollout["line"] for rollout in rollouts})
        results += [
            {
                "rollout_id": rollout["rollout_id"],
                **await _grade(
                    rollout, lines.get(rollout["line"]), grades_unfinished=job["grades_unfinished"]
                ),
            }
            for rollout in rollouts
        ]
    return results


async def _grade(
    rollout: Mapping[str, Any], line: bytes | None, *, grades_unfinished: bool
) -> dict[str, Any]:
    """Return status, score and reason by the rules of an episode's end."""
    stop = StopReason(rollout["stop_reason"])
    if stop in NEVER_GRADED or (stop is StopReason.POLICY_DEADLINE and rollout["status"] != GRADED):
        return {"status": rollout["status"], "score": None, "reason": rollout["reason"]}
    if stop not in FINISHED and not (grades_unfinished and stop is not StopReason.POLICY_DEADLINE):
        return {"status": GRADED, "score": 0.0, "reason": None}
    try:
        grade = await replayed_grade(_episode(line))
    except NotReplayable as error:
        return {"status": UNGRADED, "score": None, "reason": f"not_replayable: {error.code}"}
    return {"status": GRADED, "score": grade.score, "reason": grade.reason}


def _episode(line: bytes | None) -> RecordedEpisode:
    if line is None:
        raise NotReplayable(NO_FILE)
    try:
        stored = _Recorded.model_validate_json(line)
    except ValidationError as error:
        raise NotReplayable(NO_FILE) from error
    return RecordedEpisode(
        task_key=stored.task.key,
        prompt=stored.task.prompt,
        env_variables=stored.task.env_variables,
        calls=list(_calls(stored)),
    )


def _calls(stored: _Recorded) -> Iterator[RecordedCall]:
    """Yield the calls that reached the environment: one that could not be read has no name."""
    for turn in stored.turns:
        if turn.tool_name is not None:
            yield RecordedCall(
                name=turn.tool_name,
                arguments=turn.tool_arguments or {},
                answer=turn.observation,
                is_error=turn.is_error,
            )


def run(arguments: Sequence[str]) -> int:
    """Run the command line."""
    return main(Path(arguments[0]))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
