"""The same 200 episodes in this process and through the provider: texts, error marks, rewards.

The third way, Fleet's own client in an environment of its own, is `tests/peers/test_agreement.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

import pytest

from hillclimb.minifleet.catalog import APPS, find_task
from tests.trainer.envs.episodes import NUMBER, Episode, record
from tests.trainer.envs.fleet.scene import on_server
from trainer.envs.fleet.provider import FleetProvider


async def replayed(provider: FleetProvider, episode: Episode) -> Episode:
    """The recorded calls, made through the provider."""
    task = find_task(episode.task_key)
    assert task is not None
    async with provider.slot(task):
        env = provider.make(task)
        try:
            await env.reset()
            results = [
                await env.call(str(call["name"]), call["arguments"]) for call in episode.calls
            ]
            grade = await env.score()
        finally:
            await env.close()
    assert grade.score is not None
    return replace(
        episode,
        texts=[result.text for result in results],
        errors=[result.is_error for result in results],
        reward=grade.score,
    )


@pytest.mark.long
@pytest.mark.parametrize("runner_token", [None, "token-of-a-gated-cluster"])
async def test_the_same_episodes_are_worth_the_same_through_the_provider(
    runner_token: str | None,
) -> None:
    # A gated cluster is tried with a tenth of them.
    recorded = await record(NUMBER if runner_token is None else NUMBER // 10)
    async with on_server(env_keys=tuple(APPS), runner_token=runner_token, instance_limit=100) as (
        server,
        provider,
    ):
        played = await asyncio.gather(*(replayed(provider, each) for each in recorded))
        # On a machine that is busy some deletions go on in the background.
        await provider.close()
        stats = await server.stats()
    assert [asdict(each) for each in played] == [asdict(each) for each in recorded]
    assert stats["instances"]["running"] == 0
    assert stats["instances"]["created"] == len(recorded)
