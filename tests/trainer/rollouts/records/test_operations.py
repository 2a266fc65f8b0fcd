"""What rollouts write down of their environments, and the health and latencies made of it."""

from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult, ToolSpec
from hillclimb.spec.environment.environment import EnvironmentSpec
from tests.trainer.fixtures.scripted import ADD, DONE, CountingEnv
from tests.trainer.rollouts.test_episode import roll
from trainer.rollouts.operation import EnvOperation
from trainer.rollouts.records.operations import env_health, latency_metrics, percentile


def kinds(operations: tuple[EnvOperation, ...]) -> list[tuple[str, bool]]:
    return [(each.kind, each.failed) for each in operations]


async def test_every_operation_is_noted_in_order() -> None:
    found, _, _ = await roll(ADD + ADD, DONE, env=lambda _: CountingEnv(goal=2))
    assert kinds(found.operations) == [
        ("reset", False),
        ("call", False),
        ("call", False),
        ("verification", False),
    ]
    assert found.num_tools == 2


async def test_operations_of_repeated_tries_count_too_and_say_that_they_failed() -> None:
    found, _, _ = await roll(
        ADD, DONE, env=lambda number: CountingEnv(goal=1, call_errors=1 - min(number, 1))
    )
    assert kinds(found.operations) == [
        ("reset", False),
        ("call", True),
        ("reset", False),
        ("call", False),
        ("verification", False),
    ]
    health = env_health([found])["counting"]
    assert (health.reset.num, health.call.num, health.call.num_failed) == (2, 2, 1)
    assert health.infra_errors == {"tool_transport": 1}


NOT_OFFERED = '<tool_call>{"name": "invented", "arguments": {}}</tool_call>'


async def test_calls_of_tools_that_the_server_does_not_have_are_no_measure_of_it() -> None:
    found, _, _ = await roll(ADD, NOT_OFFERED, DONE, env=lambda _: CountingEnv(goal=1))
    assert len(found.trajectory.turns) == 3
    assert kinds(found.operations) == [("reset", False), ("call", False), ("verification", False)]
    assert env_health([found])["counting"].call.num == 1


class Speechless(CountingEnv):
    """Its verifier answers, but not with a score."""

    async def score(self) -> Grade:
        return Grade(score=None, reason="verifier_crashed")


async def test_a_verification_without_a_score_is_a_failed_one() -> None:
    found, _, _ = await roll(DONE, env=lambda _: Speechless(goal=0))
    assert kinds(found.operations) == [("reset", False), ("verification", True)]
    health = env_health([found])["counting"]
    assert (health.verification.num, health.verification.num_failed) == (1, 1)


class Bare(CountingEnv):
    """Starts, but offers nothing."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        return ()


async def test_a_reset_without_tools_is_a_failed_one() -> None:
    environment = EnvironmentSpec(max_infra_retries=0)
    found, _, _ = await roll(DONE, env=lambda _: Bare(goal=0), environment=environment)
    assert kinds(found.operations) == [("reset", True)]
    health = env_health([found])["counting"]
    assert health.num_tools is None
    assert health.prompt_tokens_p50 is None
    assert health.verification.p50_s is None


class Slow(CountingEnv):
    """Its calls take longer and longer."""

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        self.call_delay_s += 0.02
        return await super().call(name, arguments)


async def test_latencies_are_those_of_the_calls() -> None:
    found, _, _ = await roll(ADD, ADD, ADD, ADD, DONE, env=lambda _: Slow(goal=4))
    metrics = latency_metrics([found])
    assert 0.02 < metrics["environment/counting/call_latency_p50"] < 1.0
    assert 0.08 <= metrics["environment/counting/call_latency_p95"] < 1.0
    health = env_health([found])["counting"]
    assert health.call.p95_s == pytest.approx(
        metrics["environment/counting/call_latency_p95"], abs=1e-6
    )
    assert health.prompt_tokens_max == found.trajectory.prompt_length


async def test_a_rollout_without_calls_has_no_latency() -> None:
    found, _, _ = await roll(DONE, env=lambda _: CountingEnv(goal=0))
    assert latency_metrics([found]) == {}


async def test_what_the_policys_time_cut_off_says_nothing_of_the_environment() -> None:
    environment = EnvironmentSpec(call_timeout_s=0.05, trajectory_timeout_s=0.1)
    found, _, _ = await roll(ADD, delay_s=5.0, environment=environment)
    assert kinds(found.operations) == [("reset", False)]


async def test_an_environments_bug_is_a_failed_operation() -> None:
    environment = EnvironmentSpec(max_infra_retries=0)
    found, _, _ = await roll(ADD, env=lambda _: CountingEnv(goal=1, bug=True),
                             environment=environment)  # fmt: skip
    assert kinds(found.operations) == [("reset", False), ("call", True)]
    assert env_health([found])["counting"].infra_errors == {"unexpected_KeyError": 1}


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 21)]
    assert percentile(values, 0.95) == 19.0
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([2.0, 1.0], 0.5) == 1.0
