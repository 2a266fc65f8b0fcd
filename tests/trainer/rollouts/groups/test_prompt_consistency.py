"""What becomes of a group whose rollouts were not all asked the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from tests.trainer.fixtures.scripted import (
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.rollouts.request import Rollout


class Worded(CountingEnv):
    """Says itself what is asked."""

    prompt: str = ""


async def a_group(words: str, fails: str = "") -> tuple[Rollout, ...]:
    """A rollout per letter, which is what its environment asks; those in `fails` get no grade."""

    def env(number: int) -> CountingEnv:
        kind = type("Says", (Worded,), {"prompt": words[number]})
        made: CountingEnv = kind(goal=0, verifier_fails=str(number) in fails)
        return made

    collector = a_collector(
        ScriptedEngine(lambda *_: DONE),
        CountingProvider(env),
        environment=EnvironmentSpec(max_infra_retries=0),
    )
    return await collector.group(replace(a_task(), prompt=""), a_request(n=len(words)))


@pytest.mark.parametrize(
    ("words", "odd"),
    [("aaaa", []), ("aaba", [2]), ("baaa", [0]), ("abab", [1, 3]), ("abcb", [0, 2])],
)
async def test_whoever_was_asked_something_else_than_most_is_an_infra_error(
    words: str, odd: list[int]
) -> None:
    group = await a_group(words)
    outcomes = [rollout.trajectory.outcome for rollout in group]
    assert [i for i, each in enumerate(outcomes) if each.score is None] == odd
    for index in odd:
        assert outcomes[index].status is OutcomeStatus.INFRA_ERROR
        assert outcomes[index].reason == "prompt_differs"
        assert group[index].trajectory.stop_reason is StopReason.INFRA_ERROR
        assert group[index].infra_errors == ("prompt_differs",)
    assert all(each.score == 1.0 for i, each in enumerate(outcomes) if i not in odd)
    assert [rollout.trajectory.sample_index for rollout in group] == list(range(len(words)))


async def test_what_has_no_grade_decides_nothing_and_keeps_its_reason() -> None:
    outcomes = [rollout.trajectory.outcome for rollout in await a_group("bba", fails="01")]
    assert [each.reason for each in outcomes] == ["verifier_unavailable"] * 2 + [None]
    assert outcomes[2].score == 1.0
