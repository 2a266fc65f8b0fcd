"""Who grades a rollout that reaches a limit of turns or tokens before its policy is done."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hillclimb.environment.base import Grade
from hillclimb.protocol.outcomes import StopReason
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from tests.trainer.fixtures.scripted import (
    ADD,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.rollouts.request import Rollout

CUT = RolloutSpec(max_input_length=4000, max_generate_length=70, max_sequence_length=4100)
FULL = RolloutSpec(max_input_length=620, max_generate_length=80, max_sequence_length=4000)
LONG = "x" * 100


@dataclass(slots=True)
class Partial(CountingEnv):
    """Scores the share of its goal that was reached."""

    async def score(self) -> Grade:
        return Grade(score=self.count / self.goal)


async def roll(
    *turns: str, env: CountingEnv, rollout: RolloutSpec | None = None, **environment: object
) -> Rollout:
    engine = ScriptedEngine(lambda turn, _: turns[min(turn, len(turns) - 1)])
    spec = EnvironmentSpec.model_validate({"max_turns": 4, **environment})
    collector = a_collector(
        engine, CountingProvider(lambda _: env), environment=spec, rollout=rollout
    )
    ((found,),) = await collector.collect([a_task()], a_request())
    return found


@pytest.mark.parametrize(
    ("turns", "rollout", "stop"),
    [
        ((ADD,), None, StopReason.MAX_TURNS),
        ((ADD, ADD, ADD, LONG), CUT, StopReason.MAX_GENERATE_LENGTH),
        ((ADD,), FULL, StopReason.MAX_INPUT_LENGTH),
    ],
    ids=lambda value: value.value if isinstance(value, StopReason) else "",
)
@pytest.mark.parametrize(
    ("key", "is_graded"),
    [
        ({"provider": "minifleet"}, False),
        ({"provider": "fleet"}, True),
        ({"provider": "minifleet", "grade_unfinished": "verifier"}, True),
        ({"provider": "fleet", "grade_unfinished": "zero"}, False),
    ],
    ids=["minifleet", "fleet", "verifier", "zero"],
)
async def test_the_spec_decides_whether_the_verifier_grades(
    turns: tuple[str, ...],
    rollout: RolloutSpec | None,
    stop: StopReason,
    key: dict[str, str],
    is_graded: bool,
) -> None:
    env = Partial(goal=4)
    found = await roll(*turns, env=env, rollout=rollout, **key)
    assert found.trajectory.stop_reason is stop
    assert env.count > 0
    assert found.trajectory.reward == (env.count / 4 if is_graded else 0.0)


async def test_a_verifier_that_fails_at_the_limit_leaves_the_stop_reason_and_no_grade() -> None:
    env = CountingEnv(goal=1, verifier_fails=True)
    found = await roll(ADD, env=env, grade_unfinished="verifier", max_infra_retries=0)
    assert found.trajectory.stop_reason is StopReason.MAX_TURNS
    assert found.trajectory.reward is None


async def test_a_rollout_out_of_time_is_never_graded_by_the_verifier() -> None:
    turns = iter((ADD, ADD))
    engine = ScriptedEngine(lambda *_: next(turns), delay_s=0.04)
    environment = EnvironmentSpec(
        trajectory_timeout_s=0.06, call_timeout_s=0.05, grade_unfinished="verifier"
    )
    collector = a_collector(engine, CountingProvider(), environment=environment)
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.stop_reason is StopReason.POLICY_DEADLINE
    assert found.trajectory.reward is None, "although the state after one turn is the goal"
