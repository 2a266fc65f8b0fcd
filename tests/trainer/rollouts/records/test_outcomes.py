"""Outcome rows: weights, thought and time of a rollout, as analysis reads them."""

from __future__ import annotations

from hillclimb.environment.base import Grade
from tests.trainer.fixtures.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import Rollout

THOUGHT = "<think>one more</think>"


class NamesExecutions(CountingEnv):
    async def score(self) -> Grade:
        return Grade(score=1.0, verifier_execution_id="exec_7")


async def _rollout(*texts: str, env: type[CountingEnv] = CountingEnv) -> Rollout:
    engine = ScriptedEngine(lambda turn, _: texts[turn])
    provider = CountingProvider(lambda _: env(goal=1))
    (group,) = await a_collector(engine, provider).collect([a_task()], a_request())
    return group[0]


async def test_a_row_splits_tokens_into_thought_and_the_rest() -> None:
    plain, thoughtful = await _rollout(ADD, DONE), await _rollout(THOUGHT + ADD, DONE)
    (before,) = outcome_rows([plain], a_request(), trajectory_key="f")
    (after,) = outcome_rows([thoughtful], a_request(), trajectory_key="f")
    assert before.num_thinking_tokens == 0
    assert after.num_thinking_tokens == after.num_tokens - before.num_tokens > 0


async def test_a_row_names_the_weights_of_its_first_and_last_token() -> None:
    (row,) = outcome_rows([await _rollout(ADD, DONE)], a_request(), trajectory_key="f")
    assert (row.first_weight_version, row.last_weight_version) == (0, 0)


async def test_a_row_names_the_execution_of_its_verifier() -> None:
    rollout = await _rollout(ADD, DONE, env=NamesExecutions)
    (row,) = outcome_rows([rollout], a_request(), trajectory_key="f")
    assert row.verifier_execution_id == "exec_7"


async def test_the_parts_of_a_duration_are_those_of_its_operations() -> None:
    rollout = await _rollout(ADD, DONE)
    (row,) = outcome_rows([rollout], a_request(), trajectory_key="f")
    seconds = dict.fromkeys(("reset", "call", "verification"), 0.0)
    for operation in rollout.operations:
        seconds[operation.kind] += operation.seconds
    parts = (row.reset_s, row.call_s, row.verification_s)
    assert parts == tuple(round(each, 4) for each in seconds.values())
    assert {operation.kind for operation in rollout.operations} == set(seconds)
    assert sum(parts) <= row.duration_s + 1e-3
