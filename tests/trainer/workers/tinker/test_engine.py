"""The engine on a server: draws what the weights say, and counts what it waited for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tinker import types

from hillclimb.environment.errors import SampleUnusable
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from tests.trainer.learners.recorded import batch
from tests.trainer.workers.tinker.server.local import (
    make_learner,
    open_service,
    port_of,
    tinker_server,
    write_model,
)
from trainer.engines.canary import canary_gap
from trainer.errors import EngineError, LearnerError, SpecError
from trainer.types import Sample, SamplingParams
from trainer.workers.tinker.engine import TinkerEngine
from trainer.workers.tinker.service import TinkerService
from trainer.workers.tinker.sync import TinkerSync

PROMPT = tuple(random_ids(12, seed=1))
PARAMS = SamplingParams(temperature=1.0, max_new_tokens=20, stop_token_ids=(3,), seed=2**63 + 5)


def an_engine(timeout_s: float = 60.0) -> TinkerEngine:
    return TinkerEngine(timeout_s=timeout_s, max_length=200)


async def draw(engine: TinkerEngine, params: SamplingParams = PARAMS) -> Sample:
    return await engine.sample(PROMPT, params, session="a", prefix_key="")


async def synced(service: TinkerService, *, steps: int = 0) -> tuple[TinkerEngine, TinkerSync]:
    learner, engine = make_learner(service), an_engine()
    for _ in range(steps):
        await learner.step(batch())
    sync = TinkerSync(learner, engine)
    await sync.sync()
    return engine, sync


async def test_a_fresh_adapter_draws_as_the_model_and_says_how_likely_each_token_was(
    service: TinkerService,
) -> None:
    engine, _ = await synced(service)
    sample = await draw(engine)
    expected = reference_logprobs(tiny_model(), [*PROMPT, *sample.token_ids])[len(PROMPT) - 1 :]
    torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)
    assert sample.weight_versions == (0,) * len(sample.token_ids)
    assert sample.stopped == (sample.token_ids[-1] == 3)
    assert await draw(engine) == sample
    assert await draw(engine, replace(PARAMS, seed=6)) != sample


async def test_greedy_takes_the_likeliest_token(service: TinkerService) -> None:
    engine, _ = await synced(service)
    greedy = replace(PARAMS, temperature=0.0, max_new_tokens=4, stop_token_ids=())
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(4):
            ids.append(int(tiny_model()(torch.tensor([ids])).logits[0, -1].argmax()))
    assert [*PROMPT, *(await draw(engine, greedy)).token_ids] == ids


async def test_after_a_sync_it_is_the_trained_weights_that_draw_and_the_canary_agrees(
    service: TinkerService,
) -> None:
    learner, engine = make_learner(service), an_engine()
    sync = TinkerSync(learner, engine)
    await sync.sync()
    before = await engine.logprobs(PROMPT)
    await learner.step(batch())
    assert float((await engine.logprobs(PROMPT) - before).abs().max()) == 0.0
    await sync.sync()
    assert engine.weight_version == 1
    assert await canary_gap(engine, learner, PROMPT, tolerance=1e-4) < 1e-4
    assert float((await engine.logprobs(PROMPT) - before).abs().max()) > 1e-3


async def test_weights_that_did_not_change_are_not_published_again(
    service: TinkerService,
) -> None:
    learner, engine = make_learner(service), an_engine()
    sync = TinkerSync(learner, engine)
    await sync.sync()
    first = engine._client
    learner.version = 4
    await sync.sync()
    assert engine._client is first
    assert engine.weight_version == 4


async def test_many_samples_at_once_are_each_their_own(service: TinkerService) -> None:
    engine, _ = await synced(service)
    seeds = [replace(PARAMS, seed=seed) for seed in range(40)]
    together = await asyncio.gather(*(draw(engine, each) for each in seeds))
    for seeded, sample in list(zip(seeds, together, strict=True))[:3]:
        assert (await draw(engine, seeded)).token_ids == sample.token_ids
    stats = engine.stats()
    assert stats.num_sampled_tokens == sum(len(each.token_ids) for each in together) + sum(
        len(each.token_ids) for each in together[:3]
    )
    assert stats.num_prefill_tokens == 43 * len(PROMPT)
    assert stats.num_attended_pairs > stats.num_sampled_tokens * len(PROMPT)
    assert stats.busy_s > 0.0
    assert stats.loop_blocked_s == 0.0


async def test_what_does_not_fit_is_refused_here_and_there(service: TinkerService) -> None:
    engine, _ = await synced(service)
    with pytest.raises(EngineError, match="do not fit the context of 200"):
        await draw(engine, replace(PARAMS, max_new_tokens=190))
    wide = TinkerEngine(timeout_s=60.0, max_length=1000)
    wide.take(engine._ready(), 0)
    with pytest.raises(SpecError, match="a prompt may have 1 to 255 tokens, not 300"):
        await wide.sample(PROMPT * 25, PARAMS, session="a", prefix_key="")
    with pytest.raises(EngineError, match="no weights"):
        await an_engine().logprobs(PROMPT)


class _Slow:
    async def sample_async(self, *given: Any, **more: Any) -> types.SampleResponse:
        await asyncio.sleep(60.0)
        raise AssertionError


async def test_a_server_that_does_not_answer_ends_the_attempt_and_its_wait_counts() -> None:
    engine = an_engine(timeout_s=0.2)
    engine.take(_Slow(), 0)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=r"no answer to a sample in 0\.2 s"):
        await draw(engine)
    assert engine.stats().busy_s >= 0.2


@pytest.mark.parametrize("scores", [None, [], [None, -1.0, None], [-1.0, -2.0]])
async def test_a_token_without_a_score_ends_the_attempt(scores: list[float | None] | None) -> None:
    async def compute_logprobs_async(*given: Any) -> list[float | None] | None:
        return scores

    engine = an_engine()
    engine.take(SimpleNamespace(compute_logprobs_async=compute_logprobs_async), 0)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="did not score all of 4 tokens"):
        await engine.logprobs([1, 2, 3, 4])


def answer(tokens: list[int], logprobs: list[float] | None, stop: str = "length") -> Any:
    drawn = types.SampledSequence(
        stop_reason=stop,
        _tokens_list=tokens,
        _logprobs_list=logprobs,  # type: ignore[arg-type]
    )
    response = types.SampleResponse(sequences=[drawn])

    async def sample_async(*given: Any, **more: Any) -> types.SampleResponse:
        return response

    return SimpleNamespace(sample_async=sample_async)


@pytest.mark.parametrize(
    ("tokens", "logprobs", "stop", "said"),
    [
        ([5, 6], None, "length", "2 tokens came with 0 log-probs"),
        ([5, 6], [-1.0], "length", "2 tokens came with 1 log-probs"),
        ([], [], "stop", "0 tokens came with 0"),
        ([5, 6], [-1.0, float("nan")], "length", "NaN or infinite"),
        ([5, 6], [-1.0, -1.0], "stop", "the token that ended the turn was left out"),
    ],
)
async def test_an_answer_that_cannot_be_trained_on_is_no_sample(
    tokens: list[int], logprobs: list[float] | None, stop: str, said: str
) -> None:
    engine = an_engine()
    engine.take(answer(tokens, logprobs, stop), 0)
    with pytest.raises(SampleUnusable, match=said):
        await draw(engine)
    assert engine.stats().num_sampled_tokens == 0


FOUR = replace(PARAMS, max_new_tokens=4, stop_token_ids=())


async def draw_for(engine: TinkerEngine, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await engine.sample([1, 2, 3], FOUR, session="a", prefix_key="a")


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
        sample = await engine.sample([1, 2, 3], FOUR, session="a", prefix_key="a")
        assert len(sample.token_ids) == 4
    # While nobody answers, the model may still be there.
    await asyncio.sleep(0.3)
    service.watch.check()
    with tinker_server(tmp_path / "model", tmp_path / "state", port=port_of(url)):
        with pytest.raises(LearnerError, match="the model in training is lost"):
            await draw_for(engine, seconds=30.0)
        await asyncio.to_thread(service.close)
