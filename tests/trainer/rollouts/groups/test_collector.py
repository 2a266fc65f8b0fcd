import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.spec.environment.environment import EnvironmentOverride, EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
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
from trainer.errors import EngineError
from trainer.rollouts.groups.collector import as_groups
from trainer.rollouts.limits.limits import training_temperature
from trainer.rollouts.limits.priority_semaphore import PrioritySemaphore
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.types import Sample, SamplingParams


def solve(turn: int, _: SamplingParams) -> str:
    return (ADD, DONE)[min(turn, 1)]


async def test_groups_come_in_the_order_of_tasks_and_samples() -> None:
    tasks = [a_task(f"t{i}") for i in range(5)]
    collector = a_collector(ScriptedEngine(solve), CountingProvider())
    found = await collector.collect(tasks, a_request(n=3))
    assert [group.task.key for group in as_groups(found)] == [task.key for task in tasks]
    assert [r.trajectory.sample_index for r in found[4]] == [0, 1, 2]
    assert found[4][2].trajectory.rollout_id == "1/1/train/train/t4/2"


async def test_no_more_rollouts_than_allowed_are_in_flight() -> None:
    engine = ScriptedEngine(solve)
    environment = EnvironmentSpec(max_concurrent_rollouts=3)
    collector = a_collector(engine, CountingProvider(), environment=environment)
    await collector.collect([a_task(f"t{i}") for i in range(4)], a_request(n=2))
    assert engine.most_in_flight == 3


async def test_an_evaluation_gets_the_next_places_before_what_waits_for_later_steps() -> None:
    begun: list[str] = []
    are_two = asyncio.Event()

    class Noted(CountingProvider):
        def make(self, task: Task) -> CountingEnv:
            begun.append(task.key)
            if len(begun) == 2:
                are_two.set()
            return super().make(task)

    environment = EnvironmentSpec(max_concurrent_rollouts=2)
    collector = a_collector(ScriptedEngine(solve), Noted(), environment=environment)
    ahead = asyncio.create_task(collector.collect([a_task(f"t{i}") for i in range(6)], a_request()))
    await are_two.wait()
    evaluation = replace(a_request(), split="eval", decoding="sampled")
    await collector.collect([a_task(f"e{i}") for i in range(3)], evaluation)
    assert begun[:5] == ["t0", "t1", "e0", "e1", "e2"]
    await ahead
    assert begun[5:] == ["t2", "t3", "t4", "t5"]


async def test_whoever_leaves_while_waiting_costs_no_place() -> None:
    places = PrioritySemaphore(1)

    async def hold(order: list[int], number: int, turn: int) -> None:
        async with places.acquire(turn):
            order.append(number)
            await asyncio.sleep(0)

    order: list[int] = []
    async with places.acquire(0):
        waiting = [asyncio.create_task(hold(order, number, 1)) for number in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    # The place was given to the second one, which leaves before it has heard of it.
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [2, 3]
    async with asyncio.timeout(1.0), places.acquire(1):
        pass


async def test_every_request_has_a_seed_of_its_own_and_the_same_one_again() -> None:
    async def seeds(run_seed: int, step: int) -> list[int]:
        engine = ScriptedEngine(solve)
        collector = a_collector(engine, CountingProvider(), seed=run_seed)
        await collector.collect([a_task("a"), a_task("b")], a_request(n=2, step=step))
        return [params.seed for _, params, _, _ in engine.requests]

    first = await seeds(0, 1)
    assert len(set(first)) == len(first) == 8
    assert await seeds(0, 1) == first
    assert set(await seeds(0, 2)).isdisjoint(first)
    assert set(await seeds(1, 1)).isdisjoint(first)


async def test_rollouts_of_one_task_share_a_prefix_and_have_sessions_of_their_own() -> None:
    engine = ScriptedEngine(solve)
    collector = a_collector(engine, CountingProvider())
    await collector.collect([a_task("a"), a_task("b")], a_request(n=2))
    assert len({prefix for *_, prefix in engine.requests}) == 2
    assert len({session for _, _, session, _ in engine.requests}) == 4
    assert sorted(engine.released) == sorted({s for _, _, s, _ in engine.requests})


async def test_an_infra_error_is_rolled_again_with_another_seed() -> None:
    engine = ScriptedEngine(solve)
    provider = CountingProvider(lambda i: CountingEnv(goal=1, call_errors=1 if i < 2 else 0))
    ((found,),) = await a_collector(engine, provider).collect([a_task()], a_request())
    assert found.trajectory.reward == 1.0
    assert found.trajectory.num_infra_retries == 2
    assert found.infra_errors == ("tool_transport", "tool_transport")
    assert [env.num_closed for env in provider.envs] == [1, 1, 1]
    assert len({params.seed for _, params, _, _ in engine.requests}) == len(engine.requests)


async def test_an_infra_error_that_stays_is_no_zero() -> None:
    provider = CountingProvider(lambda _: CountingEnv(goal=1, call_errors=9))
    environment = EnvironmentSpec(max_infra_retries=1)
    collector = a_collector(ScriptedEngine(solve), provider, environment=environment)
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.outcome.status is OutcomeStatus.INFRA_ERROR
    assert found.trajectory.reward is None
    assert found.trajectory.stop_reason is StopReason.INFRA_ERROR
    assert (len(provider.envs), found.trajectory.num_infra_retries) == (2, 1)
    assert found.trajectory.turns == ()


END = '<tool_call>{"name": "end", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("policy", "stop"), [(solve, StopReason.DONE), (lambda *_: END, StopReason.ENV_ENDED)]
)
async def test_a_verifier_that_is_down_leaves_the_rollout_ungraded_and_says_why(
    policy: Callable[[int, SamplingParams], str],
    stop: StopReason,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    provider = CountingProvider(lambda _: CountingEnv(goal=1, verifier_fails=True))
    collector = a_collector(
        ScriptedEngine(policy), provider, environment=EnvironmentSpec(max_infra_retries=0)
    )
    ((found,),) = await collector.collect([a_task()], a_request())
    assert found.trajectory.outcome.status is OutcomeStatus.UNGRADED
    assert found.trajectory.outcome.reason == "verifier_unavailable"
    assert found.trajectory.stop_reason is stop
    assert "verifier_unavailable: down" in caplog.text


async def test_a_bug_in_an_environment_ends_one_rollout_and_not_the_run() -> None:
    provider = CountingProvider(lambda i: CountingEnv(goal=1, bug=i == 0))
    collector = a_collector(
        ScriptedEngine(solve), provider, environment=EnvironmentSpec(max_infra_retries=0)
    )
    found = await collector.collect([a_task("a"), a_task("b")], a_request())
    assert found[0][0].trajectory.outcome.reason == "unexpected_KeyError"
    assert found[1][0].trajectory.reward == 1.0


async def test_a_failing_engine_fails_the_wave_and_closes_every_environment() -> None:
    class Broken(ScriptedEngine):
        async def sample(self, *args: object, **kwargs: object) -> Sample:
            raise EngineError("no memory")

    provider = CountingProvider()
    with pytest.raises(EngineError):
        await a_collector(Broken(solve), provider).collect(
            [a_task(f"t{i}") for i in range(4)], a_request(n=2)
        )
    assert provider.envs
    assert all(env.num_closed == 1 for env in provider.envs)


async def test_rows_count_calls_errors_and_repeats() -> None:
    bad = '<tool_call>{"name": "nope", "arguments": {}}</tool_call>'
    turns = [ADD, ADD, bad, DONE]
    engine = ScriptedEngine(lambda turn, _: turns[turn])
    ((found,),) = await a_collector(engine, CountingProvider()).collect([a_task()], a_request())
    (row,) = outcome_rows([found], a_request(), trajectory_key="trajectories/x.jsonl.gz")
    assert (row.num_turns, row.num_tool_calls, row.num_tool_errors) == (4, 3, 1)
    assert row.num_repeated_calls == 1
    assert row.num_tokens == sum(found.trajectory.action_mask)
    assert (row.trajectory, row.trajectory_line) == ("trajectories/x.jsonl.gz", 0)


def test_an_environment_may_have_a_temperature_of_its_own() -> None:
    environment = EnvironmentSpec(overrides={"booking": EnvironmentOverride(temperature=0.7)})
    rollout = RolloutSpec(temperature=1.1)
    assert training_temperature("booking", environment, rollout) == 0.7
    assert training_temperature("github", environment, rollout) == 1.1
