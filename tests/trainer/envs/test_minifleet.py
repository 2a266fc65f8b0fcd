"""Serving apps, with and without faults on purpose."""

from __future__ import annotations

import asyncio
import random

import pytest

from hillclimb.environment.base import EnvProvider
from hillclimb.environment.errors import (
    EnvUnavailable,
    RolloutError,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.minifleet.faults import FaultInjector, Faults
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.spec.environment.environment import FaultSpec
from hillclimb.spec.run import MINIFLEET_ENV_KEYS
from trainer.envs.minifleet import MinifleetProvider
from trainer.errors import SpecError

TASK = minifleet_tasks(("outlook",), "train", 1, 0)[0]


def test_the_provider_is_an_env_provider_and_serves_what_a_spec_may_name() -> None:
    provider: EnvProvider = MinifleetProvider()
    assert provider.env_keys == MINIFLEET_ENV_KEYS


def test_unknown_apps_and_stray_faults_are_refused() -> None:
    with pytest.raises(SpecError, match="minifleet has no jira"):
        MinifleetProvider(env_keys=("jira",))
    with pytest.raises(SpecError, match="not served: reddit"):
        MinifleetProvider(env_keys=("booking",), faults={"reddit": Faults()})
    with pytest.raises(SpecError, match="outlook"):
        MinifleetProvider(env_keys=("booking",)).make(TASK)


@pytest.mark.parametrize("wrong", [{"call_error_rate": 1.5}, {"reset_error_rate": -0.1}])
def test_rates_outside_zero_to_one_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        Faults(**wrong)


def test_a_negative_latency_is_refused() -> None:
    with pytest.raises(ValueError, match="latency_s"):
        Faults(latency_s=-1.0)


async def outcome(provider: MinifleetProvider) -> str:
    env = provider.make(TASK)
    try:
        await env.reset()
        await env.call("find_mails", {"query": "x"})
        await env.score()
    except RolloutError as error:
        return error.code
    return "graded"


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        (Faults(reset_error_rate=1.0), EnvUnavailable),
        (Faults(call_error_rate=1.0), ToolTransport),
        (Faults(verifier_error_rate=1.0), VerifierUnavailable),
    ],
)
async def test_each_rate_raises_the_error_of_its_boundary(
    faults: Faults, error: type[RolloutError]
) -> None:
    assert await outcome(MinifleetProvider(faults={"outlook": faults})) == error.code


async def test_faults_strike_at_their_rate_and_repeat_with_the_seed() -> None:
    def provider(seed: int) -> MinifleetProvider:
        return MinifleetProvider(faults={"outlook": Faults(call_error_rate=0.3)}, seed=seed)

    first, again, other = provider(1), provider(1), provider(2)
    drawn = [await outcome(first) for _ in range(300)]
    assert 60 < drawn.count("tool_transport") < 120
    assert drawn == [await outcome(again) for _ in range(300)]
    assert drawn != [await outcome(other) for _ in range(300)]


async def test_faults_of_one_app_leave_the_others_alone() -> None:
    assert await outcome(MinifleetProvider(faults={"reddit": Faults(reset_error_rate=1)})) == (
        "graded"
    )


async def test_latency_is_waited_before_reset_call_and_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert await outcome(MinifleetProvider(faults={"outlook": Faults(latency_s=0.5)})) == "graded"
    assert waited == [0.5, 0.5, 0.5]


def test_a_spread_latency_has_the_median_and_the_99th_percentile_asked_for() -> None:
    faults, rng = Faults(latency_s=0.5, latency_p99_s=10.0), random.Random(0)
    drawn = sorted(faults.draw_latency(rng) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(0.5, rel=0.05)
    assert drawn[19_800] == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize(("median", "p99"), [(0.0, 1.0), (2.0, 1.0)])
def test_a_spread_latency_needs_a_median_below_its_99th_percentile(
    median: float, p99: float
) -> None:
    with pytest.raises(ValueError, match="latency_p99_s"):
        Faults(latency_s=median, latency_p99_s=p99)
    with pytest.raises(ValueError, match="latency_p99_s"):
        FaultSpec(latency_s=median, latency_p99_s=p99)


def test_equal_seeds_wait_equally_whatever_fails() -> None:
    def latencies(rate: float) -> list[float]:
        faults = Faults(latency_s=0.5, latency_p99_s=10.0, call_error_rate=rate)
        injector = FaultInjector(faults, "seed")
        return [faults.draw_latency(injector._latencies) for _ in range(5)]

    assert latencies(0.0) == latencies(0.9)
