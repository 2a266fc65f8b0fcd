"""States of linear attention belong to exactly the tokens that they are used for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch

from tests.trainer.fixtures.families import VOCAB, family_model
from tests.trainer.fixtures.tiny import reference_logprobs
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.inputs.model.families.family import CausalLM
from trainer.types import Sample, SamplingParams


def hybrid() -> CausalLM:
    return family_model("qwen3_5_text")


def engine_of(model: CausalLM, *, num_sessions: int = 4, max_prefill: int = 64) -> TorchEngine:
    options = TorchEngineOptions(
        num_sessions=num_sessions, max_length=256, max_prefill_tokens=max_prefill
    )
    return TorchEngine(model.config, dict(model.state_dict()), options=options)


def ids(length: int, seed: int) -> list[int]:
    drawn: list[int] = torch.randint(
        0, VOCAB, (length,), generator=torch.manual_seed(seed)
    ).tolist()
    return drawn


async def drawn(
    engine: TorchEngine, tokens: Sequence[int], session: str, prefix: str = "", seed: int = 1
) -> Sample:
    params = SamplingParams(temperature=1.0, max_new_tokens=7, seed=seed)
    return await engine.sample(tokens, params, session=session, prefix_key=prefix)


def gap(model: CausalLM, tokens: Sequence[int], sample: Sample) -> float:
    """Largest difference of the sample's log-probs from those of the whole sequence."""
    whole = reference_logprobs(model, [*tokens, *sample.token_ids])  # type: ignore[arg-type]
    expected = whole[len(tokens) - 1 :]
    return float((torch.tensor(sample.logprobs) - expected).abs().max())


async def test_a_prompt_that_comes_again_is_not_continued_from_a_state_behind_it() -> None:
    model = hybrid()
    engine = engine_of(model)
    tokens = ids(30, seed=1)
    first = await drawn(engine, tokens, "s")
    again = await drawn(engine, tokens, "s")
    assert again == first
    assert gap(model, tokens, again) < 1e-4
    # Cut back to the middle of what was computed, and on from there with other tokens.
    shorter = [*tokens, *first.token_ids[:2], *ids(4, seed=2)]
    assert gap(model, shorter, await drawn(engine, shorter, "s")) < 1e-4
    await engine.close()


async def test_a_row_that_is_used_again_begins_without_a_state() -> None:
    model = hybrid()
    engine = engine_of(model, num_sessions=1)
    await drawn(engine, ids(40, seed=3), "one")
    engine.release("one")
    for number, length in enumerate((1, 2, 20)):
        tokens = ids(length, seed=number)
        assert gap(model, tokens, await drawn(engine, tokens, f"s{number}")) < 1e-4
        engine.release(f"s{number}")
    await engine.close()


async def test_prompts_that_take_several_steps_and_siblings_that_join_later_are_exact() -> None:
    model = hybrid()
    engine = engine_of(model, max_prefill=13)
    shared = ids(50, seed=4)
    prompts = [[*shared, *ids(length, seed=length)] for length in (1, 2, 30)]
    names = [f"s{number}" for number in range(3)]
    together = await asyncio.gather(
        *(drawn(engine, prompts[at], names[at], "g", seed=at) for at in range(3))
    )
    late = await drawn(engine, shared + ids(3, seed=9), "late", "g", seed=7)
    for tokens, sample in zip(prompts, together, strict=True):
        assert gap(model, tokens, sample) < 1e-4
    assert gap(model, shared + ids(3, seed=9), late) < 1e-4
    turns = [[*p, *s.token_ids, *ids(6, seed=5)] for p, s in zip(prompts, together, strict=True)]
    seconds = await asyncio.gather(
        *(drawn(engine, turns[at], names[at], "g", seed=at) for at in range(3))
    )
    for tokens, sample in zip(turns, seconds, strict=True):
        assert gap(model, tokens, sample) < 1e-4
    await engine.close()


async def test_scoring_a_sequence_reads_and_leaves_no_state() -> None:
    model = hybrid()
    engine = engine_of(model)
    tokens = ids(90, seed=6)
    turn = ids(12, seed=7)
    before = await drawn(engine, turn, "s")
    found = await engine.logprobs(tokens)
    expected = reference_logprobs(model, tokens)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    following = [*turn, *before.token_ids, 3, 4]
    assert gap(model, following, await drawn(engine, following, "s")) < 1e-4
    await engine.close()
