"""A session that the server has lost is noticed before a step's rollouts are drawn for nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.trainer.workers.tinker.server.local import (
    make_learner,
    open_service,
    port_of,
    tinker_server,
    write_model,
)
from trainer.errors import LearnerError
from trainer.types import SamplingParams
from trainer.workers.tinker.engine import TinkerEngine


async def draw_for(engine: TinkerEngine, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await engine.sample([1, 2, 3], PARAMS, session="a", prefix_key="a")


PARAMS = SamplingParams(max_new_tokens=4, temperature=1.0, stop_token_ids=(), seed=3)


async def test_a_server_that_was_started_again_ends_sampling_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sampling sessions outlive it, so that samples alone would never tell."""
    monkeypatch.setattr("trainer.workers.tinker.watch.PERIOD_S", 0.05)
    write_model(tmp_path / "model")
    with tinker_server(tmp_path / "model", tmp_path / "state") as url:
        service = await asyncio.to_thread(open_service, url)
        learner = await asyncio.to_thread(make_learner, service)
        engine = TinkerEngine(timeout_s=60.0, max_length=200, check=service.watch.check)
        engine.take(await learner.sampling_client(), 0)
        sample = await engine.sample([1, 2, 3], PARAMS, session="a", prefix_key="a")
        assert len(sample.token_ids) == 4
    # While nobody answers, the model may still be there.
    await asyncio.sleep(0.3)
    service.watch.check()
    with tinker_server(tmp_path / "model", tmp_path / "state", port=port_of(url)):
        with pytest.raises(LearnerError, match="the model in training is lost"):
            await draw_for(engine, seconds=30.0)
        await asyncio.to_thread(service.close)
