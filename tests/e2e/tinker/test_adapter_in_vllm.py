"""What a run on a server leaves behind serves elsewhere: vLLM draws from it as the server does."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tinker", reason="the data plane's environment runs this: `make e2e`")
pytest.importorskip("trainer.engines.vllm.engine", reason="vLLM does not import here")

import torch

from tests.trainer.learners.recorded import batch
from tests.trainer.workers.tinker.server.local import (
    RANK,
    SDK_LEAVES_SOCKETS,
    make_learner,
    open_service,
    tinker_server,
)
from trainer.engines.canary import canary_tokens
from trainer.engines.vllm.engine import VllmEngine
from trainer.engines.vllm.options import VllmOptions
from trainer.inputs.model.sources import resolve_source
from trainer.types import SamplingParams
from trainer.workers.tinker.engine import TinkerEngine
from trainer.workers.tinker.sync import TinkerSync

pytestmark = SDK_LEAVES_SOCKETS
PROMPT = canary_tokens(2048)
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=24, seed=1)
STEPS = 3


async def test_an_adapter_that_was_brought_from_a_server_draws_the_same_in_vllm(
    tmp_path: Path,
) -> None:
    model_dir = resolve_source("builtin:tiny-qwen3-a", tmp_path)
    with tinker_server(model_dir, tmp_path / "state") as url:
        service = open_service(url)
        learner = make_learner(service)
        on_server = TinkerEngine(timeout_s=service.timeout_s, max_length=256)
        sync = TinkerSync(learner, on_server)
        await sync.sync()
        before = await on_server.logprobs(PROMPT)
        for _ in range(STEPS):
            await learner.step(batch())
        await sync.sync()
        # What `hillclimb pull` brings.
        learner.begin_save(tmp_path)()
        drawn = await on_server.sample(PROMPT, GREEDY, session="s", prefix_key="g")
        ids = [*PROMPT, *drawn.token_ids]
        scored = await on_server.logprobs(ids)
        service.close()
    options = VllmOptions(model_dir=model_dir, max_length=256, num_sessions=8, lora_rank=RANK)
    engine = VllmEngine(options)
    try:
        torch.testing.assert_close(await engine.logprobs(PROMPT), before, atol=1e-4, rtol=0)
        await engine.load_weights_file(tmp_path / "adapter", STEPS)
        torch.testing.assert_close(await engine.logprobs(ids), scored, atol=1e-4, rtol=0)
        again = await engine.sample(PROMPT, GREEDY, session="s", prefix_key="g")
    finally:
        await engine.close()
    assert (again.token_ids, again.stopped) == (drawn.token_ids, drawn.stopped)
    assert again.logprobs == pytest.approx(drawn.logprobs, abs=1e-4)
    # Without the adapter these would be other scores.
    assert float((scored[: len(before)] - before).abs().max()) > 0.1
