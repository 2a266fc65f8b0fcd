"""The rescoring process from the inside: its files, each end's rule, and how it fails."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.results.errors import NotRescorable, RescoringBusy
from api.results.rescoring import job, process
from hillclimb.minifleet.replay import verifier_version
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from tests.api.results.rescoring.test_rescore import TASKS, Played, line_of, six_ends, unfinished

FILE = "step-0.jsonl.gz"
Graded = tuple[str, float | None]


def job_of(episodes: list[Played], *, grades_unfinished: bool = False) -> dict[str, Any]:
    rollouts = [
        {
            "rollout_id": f"rollout-{number}",
            "line": number,
            "stop_reason": played.stop.value,
            "status": played.status.value,
            "reason": "connect_timeout" if played.stored is None else None,
        }
        for number, played in enumerate(episodes)
    ]
    return {"grades_unfinished": grades_unfinished, "files": {FILE: rollouts}}


def write(folder: Path, episodes: list[Played]) -> None:
    text = "".join(json.dumps(line_of(played)) + "\n" for played in episodes)
    (folder / FILE).write_bytes(gzip.compress(text.encode()))


def results_of(folder: Path, work: dict[str, Any]) -> list[dict[str, Any]]:
    (folder / process.JOB).write_text(json.dumps(work))
    assert job.run([str(folder)]) == 0
    found = json.loads((folder / process.RESULT).read_text())
    assert found["verifier"] == verifier_version()
    results: list[dict[str, Any]] = found["results"]
    return results


def grades(results: list[dict[str, Any]]) -> list[Graded]:
    return [(each["status"], each["score"]) for each in results]


def test_every_end_is_graded_by_its_rule(tmp_path: Path) -> None:
    episodes = six_ends()
    write(tmp_path, episodes)
    results = results_of(tmp_path, job_of(episodes))
    assert [each["rollout_id"] for each in results] == [f"rollout-{number}" for number in range(6)]
    assert grades(results) == [
        ("graded", 1.0),
        ("graded", 0.0),
        ("ungraded", None),
        ("infra_error", None),
        ("graded", 0.0),
        ("graded", 1.0),
    ]
    assert [results[number]["reason"] for number in (2, 3, 4)] == [
        "not_replayable: other_answer",
        "connect_timeout",
        None,
    ]


def test_unfinished_rollouts_are_graded_where_the_spec_says_so(tmp_path: Path) -> None:
    """At the turn limit the verifier grades the state; one out of time stays a failure, or open."""
    solved = six_ends()[4]
    late = Played(recording=solved.recording, stored=0.0, stop=StopReason.POLICY_DEADLINE)
    failed = Played(recording=unfinished(TASKS[1]), stored=0.0, stop=StopReason.MAX_TURNS)
    ungraded = replace(late, stored=None, status=OutcomeStatus.UNGRADED)
    episodes = [solved, late, failed, ungraded]
    write(tmp_path, episodes)
    results = results_of(tmp_path, job_of(episodes, grades_unfinished=True))
    assert grades(results) == [
        ("graded", 1.0), ("graded", 0.0), ("graded", 0.0), ("ungraded", None),
    ]  # fmt: skip
    assert results[2]["reason"].startswith("missing:")


@pytest.mark.parametrize("damage", ["no file", "no line", "not gzip", "not JSON", "another shape"])
def test_a_rollout_without_a_readable_line_is_not_replayable(tmp_path: Path, damage: str) -> None:
    episodes = six_ends()[:1]
    if damage == "no line":
        write(tmp_path, [])
    elif damage == "not gzip":
        (tmp_path / FILE).write_bytes(b"plain text")
    elif damage != "no file":
        text = "{" if damage == "not JSON" else '{"task": {}}'
        (tmp_path / FILE).write_bytes(gzip.compress(text.encode()))
    (result,) = results_of(tmp_path, job_of(episodes))
    assert result == {
        "rollout_id": "rollout-0",
        "status": "ungraded",
        "score": None,
        "reason": "not_replayable: no_trajectory",
    }


def test_the_process_that_fails_is_an_error_with_its_exit_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        process.replay_all(tmp_path, {"grades_unfinished": False, "files": 3})
    assert "AttributeError" in caplog.text


def test_a_replay_over_its_deadline_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "DEADLINE_S", 0.01)
    with pytest.raises(NotRescorable, match="rescore one step at a time"):
        process.replay_all(tmp_path, job_of([]))
    assert process._turn.acquire(blocking=False), "the turn is free again"
    process._turn.release()


def test_one_replay_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAIT_S", 0.01)
    with process._turn, pytest.raises(RescoringBusy, match="try again in a minute"):
        process.replay_all(tmp_path, job_of([]))


def test_the_process_gets_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment passed on is a list of names; the database's address is not among them."""
    seen: dict[str, str] = {}

    def environment_of(*_: object, env: dict[str, str], **__: object) -> object:
        seen.update(env)
        raise RuntimeError("seen")

    monkeypatch.setenv("HILLCLIMB_DATABASE_URL", "postgresql://secret")
    monkeypatch.setattr(process.subprocess, "run", environment_of)
    with pytest.raises(RuntimeError, match="seen"):
        process.replay_all(tmp_path, job_of([]))
    assert seen["PATH"] == os.environ["PATH"]
    assert "postgresql://secret" not in seen.values()
