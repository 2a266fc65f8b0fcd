"""Recorded episodes graded again: by the same answers, or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hillclimb.environment.base import ToolCall
from hillclimb.minifleet import env as minifleet_env
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.replay import (
    NotReplayable,
    RecordedEpisode,
    replayed_grade,
    verifier_version,
)
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.hillclimb.minifleet.playing import Rewrite, as_it_is, without
from tests.hillclimb.minifleet.recording import record


def mistaken(call: ToolCall) -> Sequence[ToolCall]:
    """Calls an unknown tool first, then leaves out an argument, then makes the call."""
    return (
        ToolCall(name="fly", arguments={}),
        ToolCall(name=call.name, arguments={"nonsense": 1}),
        call,
    )


@pytest.mark.parametrize("rewrite", [as_it_is, mistaken])
@pytest.mark.parametrize("env_key", list(APPS))
async def test_a_replay_has_the_grade_of_the_episode(env_key: str, rewrite: Rewrite) -> None:
    for task in minifleet_tasks([env_key], "eval", 12, seed=5, held_out_share=0.25):
        solved = await record(task, rewrite)
        assert solved.grade.score == 1.0
        assert await replayed_grade(solved.episode) == solved.grade
        unfinished = await record(task, without(solved.calls[-1][0].name))
        assert unfinished.grade.score == 0.0
        assert await replayed_grade(unfinished.episode) == unfinished.grade


async def test_another_verifier_gives_another_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = minifleet_tasks(["booking"], "eval", 1, seed=5)
    recorded = await record(task)
    last = recorded.calls[-1][0].name
    unfinished = await record(task, without(last))
    assert (await replayed_grade(unfinished.episode)).score == 0.0
    monkeypatch.setattr(minifleet_env, "explain_mismatch", lambda *_: None)
    assert (await replayed_grade(unfinished.episode)).score == 1.0


async def refused(episode: RecordedEpisode) -> str:
    with pytest.raises(NotReplayable) as caught:
        await replayed_grade(episode)
    return caught.value.code


async def test_an_episode_whose_end_is_not_known_is_not_graded() -> None:
    (task,) = minifleet_tasks(["github"], "eval", 1, seed=5)
    episode = (await record(task)).episode
    first, *others = episode.calls
    for code, changed in {
        "unknown_task": replace(episode, task_key="github/eval/no_template/000001"),
        "other_task": replace(episode, prompt=f"{episode.prompt} Please."),
        "other_answer": replace(episode, calls=[replace(first, answer="no"), *others]),
        "no_answer": replace(episode, calls=[replace(first, answer=None), *others]),
    }.items():
        assert await refused(changed) == code
    assert await refused(replace(episode, env_variables={})) == "other_task"
    error = replace(first, is_error=not first.is_error)
    assert await refused(replace(episode, calls=[error, *others])) == "other_answer"


def test_the_version_names_the_sources() -> None:
    assert re.fullmatch(r"minifleet-[0-9a-f]{12}", verifier_version())
