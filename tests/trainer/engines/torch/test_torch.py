"""The engine against plain transformers, over many uneven sessions at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.errors import EngineError
from trainer.types import Sample, SamplingParams


@dataclass
class Played:
    token_ids: list[int]
    actions: list[int]
    logprobs: list[float]


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    return tiny_model()


@pytest.fixture
async def engine(model: Qwen3ForCausalLM) -> AsyncIterator[TorchEngine]:
    made = engine_of(model)
    yield made
    await made.close()


def engine_of(model: Qwen3ForCausalLM, **options: int) -> TorchEngine:
    sizes = TorchEngineOptions(**({"num_sessions": 16, "max_length": 256} | options))  # type: ignore[arg-type]
    return TorchEngine(model.config, model.state_dict(), options=sizes)


def params(*, new: int = 8, temperature: float = 1.0, seed: int = 0) -> SamplingParams:
    return SamplingParams(temperature=temperature, max_new_tokens=new, seed=seed)


async def play(
    engine: TorchEngine, index: int, *, group: int, turns: int = 3, temperature: float = 1.0
) -> Played:
    """An episode of several turns whose lengths depend on `index`."""
    ids = random_ids(12 + 5 * group, seed=group)
    actions: list[int] = []
    logprobs: list[float] = []
    for turn in range(turns):
        sample = await engine.sample(
            ids,
            params(new=3 + (index * 7 + turn * 5) % 11, temperature=temperature, seed=index),
            session=f"s{index}",
            prefix_key=f"g{group}",
        )
        actions += range(len(ids), len(ids) + len(sample.token_ids))
        logprobs += sample.logprobs
        ids = [*ids, *sample.token_ids, *random_ids(1 + (index + turn) % 6, seed=index + turn)]
    engine.release(f"s{index}")
    return Played(token_ids=ids, actions=actions, logprobs=logprobs)


async def sampled(engine: TorchEngine, num_tokens: int) -> None:
    """Return as soon as the engine has drawn that many tokens."""
    while engine.stats().num_sampled_tokens < num_tokens:  # noqa: ASYNC110
        await asyncio.sleep(0)


def worst_gap(model: Qwen3ForCausalLM, played: Played, *, temperature: float = 1.0) -> float:
    reference = reference_logprobs(model, played.token_ids, temperature=temperature)
    return max(
        abs(float(reference[at - 1]) - logprob)
        for at, logprob in zip(played.actions, played.logprobs, strict=True)
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_log_probs_equal_a_full_forward_over_shared_prefixes_and_reused_rows(
    model: Qwen3ForCausalLM, temperature: float
) -> None:
    engine = engine_of(model, num_sessions=5)
    played = await asyncio.gather(
        *(play(engine, index, group=index // 4, temperature=temperature) for index in range(20))
    )
    await engine.close()
    assert max(worst_gap(model, item, temperature=temperature) for item in played) < 1e-4


@pytest.mark.parametrize("max_prefill_tokens", [1, 7])
async def test_prompts_computed_piece_by_piece_give_the_same_tokens(
    model: Qwen3ForCausalLM, engine: TorchEngine, max_prefill_tokens: int
) -> None:
    small = engine_of(model, max_prefill_tokens=max_prefill_tokens)
    chunks = await asyncio.gather(*(play(small, index, group=index % 2) for index in range(4)))
    whole = await asyncio.gather(*(play(engine, index, group=index % 2) for index in range(4)))
    await small.close()
    assert [item.token_ids for item in chunks] == [item.token_ids for item in whole]


async def test_greedy_equals_transformers_greedy(
    model: Qwen3ForCausalLM, engine: TorchEngine
) -> None:
    ids = random_ids(20, seed=1)
    sample = await engine.sample(ids, params(new=40, temperature=0.0), session="s", prefix_key="g")
    expected = model.generate(  # type: ignore[misc]
        torch.tensor([ids]), do_sample=False, max_new_tokens=40, attention_mask=torch.ones(1, 20)
    )[0, 20:]
    assert list(sample.token_ids) == expected.tolist()
    full = [*ids, *sample.token_ids]
    assert sample.logprobs == pytest.approx(reference_logprobs(model, full)[19:].tolist(), abs=1e-4)


async def test_a_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(
    model: Qwen3ForCausalLM, engine: TorchEngine
) -> None:
    alone = [await play(engine, index, group=index // 4) for index in range(8)]
    together = await asyncio.gather(*(play(engine, i, group=i // 4) for i in reversed(range(8))))
    assert [item.token_ids for item in alone] == [item.token_ids for item in reversed(together)]


async def test_other_seeds_give_other_tokens(engine: TorchEngine) -> None:
    async def draw(seed: int) -> Sample:
        return await engine.sample(
            random_ids(9, seed=0), params(new=30, seed=seed), session=str(seed), prefix_key="g"
        )

    samples = await asyncio.gather(*(draw(seed) for seed in range(8)))
    assert len({sample.token_ids for sample in samples}) == 8


async def test_the_prompt_of_a_group_is_computed_once_and_turns_go_on(
    engine: TorchEngine,
) -> None:
    ids = random_ids(50, seed=0)
    samples = await asyncio.gather(
        *(engine.sample(ids, params(seed=i), session=str(i), prefix_key="g") for i in range(8))
    )
    first = engine.stats()
    assert first.num_prefill_tokens == 49 + 8
    assert first.num_cached_tokens == 7 * 49
    assert first.num_sampled_tokens == 8 * 8
    # Each token attends to itself and to those before: 1 + ... + 50 once, 50 by each of the seven
    # other rollouts, and 51 + ... + 58 by what each of the eight drew.
    assert first.num_attended_pairs == 1275 + 7 * 50 + 8 * 436
    again = [*ids, *samples[0].token_ids, 1, 2, 3]
    await engine.sample(again, params(), session="0", prefix_key="g")
    second = engine.stats()
    assert second.num_prefill_tokens - first.num_prefill_tokens == 4
    assert second.num_cached_tokens - first.num_cached_tokens == 57
    assert second.num_attended_pairs - first.num_attended_pairs == sum(range(58, 70))
    assert second.busy_s > first.busy_s > 0.0
    assert second.loop_blocked_s == second.busy_s, "it steps in the event loop's thread"


async def test_a_prompt_that_contradicts_the_cache_is_computed_again(
    model: Qwen3ForCausalLM, engine: TorchEngine
) -> None:
    ids = random_ids(30, seed=0)
    await engine.sample(ids, params(), session="s", prefix_key="g")
    for other in (ids[:10], [*ids, 9, 9, 9, 9], random_ids(30, seed=5), ids):
        sample = await engine.sample(other, params(), session="s", prefix_key="g")
        expected = reference_logprobs(model, [*other, *sample.token_ids])[len(other) - 1 :]
        assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


async def test_a_prompt_of_one_token_works(model: Qwen3ForCausalLM, engine: TorchEngine) -> None:
    sample = await engine.sample([3], params(), session="s", prefix_key="g")
    expected = reference_logprobs(model, [3, *sample.token_ids])
    assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


async def test_a_stop_token_ends_the_sample_and_is_part_of_it(engine: TorchEngine) -> None:
    ids = random_ids(20, seed=1)
    free = await engine.sample(ids, params(new=20), session="a", prefix_key="g")
    stop = free.token_ids[4]
    at = free.token_ids.index(stop)
    stopped = await engine.sample(
        ids,
        SamplingParams(temperature=1.0, max_new_tokens=20, stop_token_ids=(stop,)),
        session="b",
        prefix_key="g",
    )
    assert not free.stopped
    assert stopped.stopped
    assert stopped.token_ids == free.token_ids[: at + 1]


async def test_a_request_that_does_not_fit_is_refused(engine: TorchEngine) -> None:
    for length, new in ((250, 8), (0, 8)):
        with pytest.raises(EngineError, match="do not fit"):
            await engine.sample(
                random_ids(length, seed=0), params(new=new), session="s", prefix_key="g"
            )


async def test_more_sessions_than_rows_wait_even_if_nobody_releases(
    model: Qwen3ForCausalLM,
) -> None:
    engine = engine_of(model, num_sessions=2)
    prompts = [random_ids(10, seed=seed) for seed in range(7)]
    samples = await asyncio.gather(
        *(
            engine.sample(ids, params(), session=str(index), prefix_key=str(index))
            for index, ids in enumerate(prompts)
        )
    )
    await engine.close()
    for ids, sample in zip(prompts, samples, strict=True):
        expected = reference_logprobs(model, [*ids, *sample.token_ids])[9:]
        assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


async def test_cancelling_a_waiting_request_frees_its_row(model: Qwen3ForCausalLM) -> None:
    engine = engine_of(model, num_sessions=1)
    ids = random_ids(10, seed=0)
    tasks = [
        asyncio.create_task(engine.sample(ids, params(new=200), session=str(index), prefix_key="g"))
        for index in range(2)
    ]
    await sampled(engine, 3)
    for task in tasks:
        task.cancel()
    assert all(
        isinstance(result, asyncio.CancelledError)
        for result in await asyncio.gather(*tasks, return_exceptions=True)
    )
    sample = await engine.sample(ids, params(), session="z", prefix_key="g")
    await engine.close()
    assert engine.stats().num_sampled_tokens < 100
    expected = reference_logprobs(model, [*ids, *sample.token_ids])[9:]
    assert sample.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


async def test_releasing_a_session_in_flight_ends_its_request(engine: TorchEngine) -> None:
    task = asyncio.create_task(
        engine.sample([1, 2, 3], params(new=200), session="s", prefix_key="g")
    )
    await sampled(engine, 1)
    engine.release("s")
    engine.release("unknown")
    with pytest.raises(EngineError, match="released"):
        await task


@pytest.mark.parametrize("tied", [True, False])
async def test_new_weights_take_effect_with_their_head_and_without_old_caches(tied: bool) -> None:
    old, new = tiny_model(seed=0, tied=tied), tiny_model(seed=1, tied=tied)
    engine = engine_of(old)
    ids = random_ids(20, seed=1)
    before = await engine.sample(ids, params(), session="s", prefix_key="g")
    await engine.update(new.state_dict(), 7)
    after = await engine.sample(ids, params(), session="s", prefix_key="g")
    scored = await engine.logprobs(ids)
    await engine.close()
    assert (before.weight_versions[0], after.weight_versions[-1], engine.weight_version) == (
        0,
        7,
        7,
    )
    expected = reference_logprobs(new, [*ids, *after.token_ids])
    assert after.logprobs == pytest.approx(expected[19:].tolist(), abs=1e-4)
    torch.testing.assert_close(scored, expected[:19], atol=1e-4, rtol=0)


async def test_update_waits_for_running_requests_and_holds_back_new_ones(
    engine: TorchEngine,
) -> None:
    async def sample(name: str) -> Sample:
        return await engine.sample([1, 2, 3], params(new=30), session=name, prefix_key=name)

    running = asyncio.create_task(sample("a"))
    await sampled(engine, 1)
    update = asyncio.create_task(engine.update(tiny_model(seed=1).state_dict(), 1))
    await asyncio.sleep(0)
    late = asyncio.create_task(sample("b"))
    first, second = await asyncio.gather(running, late)
    await update
    assert (set(first.weight_versions), set(second.weight_versions)) == ({0}, {1})


async def test_unknown_or_misshapen_weights_are_refused(engine: TorchEngine) -> None:
    for weights in ({"model.nothing": torch.zeros(1)}, {"lm_head.weight": torch.zeros(2, 2)}):
        with pytest.raises(EngineError, match="no weight"):
            await engine.update(weights, 1)


async def test_a_failing_step_reaches_every_request(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine._decoder, "hidden", fail)
    results = await asyncio.gather(
        *(engine.sample([1, 2], params(), session=str(i), prefix_key="g") for i in range(3)),
        return_exceptions=True,
    )
    assert all(isinstance(item, EngineError) and "out of memory" in str(item) for item in results)
    monkeypatch.undo()
    assert len((await engine.sample([1, 2], params(), session="s", prefix_key="g")).token_ids) == 8


async def test_closing_ends_requests_in_flight(model: Qwen3ForCausalLM) -> None:
    engine = engine_of(model)
    task = asyncio.create_task(
        engine.sample([1, 2, 3], params(new=200), session="s", prefix_key="g")
    )
    await sampled(engine, 1)
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await task


async def test_a_session_asked_again_leaves_its_first_request_behind(engine: TorchEngine) -> None:
    """As when a rollout worker died in mid-turn, and the rollout is begun again."""
    ids = random_ids(12, seed=1)
    alone = await engine.sample(ids, params(new=20), session="alone", prefix_key="")
    first = asyncio.create_task(engine.sample(ids, params(new=20), session="s", prefix_key=""))
    for _ in range(8):
        await asyncio.sleep(0)
    again = await engine.sample(ids, params(new=20), session="s", prefix_key="")
    with pytest.raises(EngineError, match="released"):
        await first
    assert again.token_ids == alone.token_ids
    assert again.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
