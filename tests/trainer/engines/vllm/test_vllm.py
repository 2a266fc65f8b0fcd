"""Real vLLM on the shipped model: started once for all tests of this file."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file, save_file

from hillclimb.hardware.model.shipped import assets_dir
from hillclimb.protocol.rundir import POLICY
from tests.trainer.engines.vllm.late import NEEDS_VLLM, start_vllm
from tests.trainer.weights.tampered import Tampered, drifted, nothing_of, one_bit_off, without
from trainer.engines.canary import canary_gap, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import EngineError, WeightSyncMismatch
from trainer.inputs.model.directory import load_policy
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.types import Sample, SamplingParams
from trainer.weights.file_system import FileSystemSync, WritesWeights

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    NEEDS_VLLM,
    # vLLM and its own dependencies warn of each other.
    pytest.mark.filterwarnings("ignore"),
]
MODEL = assets_dir() / "tiny-qwen3-a"
END = 2
"""The model's `<|im_end|>`."""
LENGTH = 1024


@dataclass
class Pair:
    """An engine, the learner whose weights it serves, and the way between them."""

    engine: object
    learner: InlineLearner
    shared: Path

    async def sample(self, ids: list[int], *, session: str = "s", **params: object) -> Sample:
        values = {"temperature": 1.0, "max_new_tokens": 24, "stop_token_ids": (END,), "seed": 3}
        wanted = SamplingParams(**(values | params))  # type: ignore[arg-type]
        return await self.engine.sample(ids, wanted, session=session, prefix_key=session)  # type: ignore[attr-defined, no-any-return]

    async def sync(self, learner: WritesWeights | None = None) -> None:
        await FileSystemSync(learner or self.learner, [self.engine], self.shared).sync()  # type: ignore[list-item]

    def change(self, seed: int) -> None:
        change(self.learner, seed=seed)


def change(learner: InlineLearner, *, seed: int) -> None:
    """Move every weight of the learner, the tied head with the embedding."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.rank._models.parameters.values():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.to_local().add_(0.02 * noise)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    root = tmp_path_factory.mktemp("vllm")
    learner = InlineLearner(load_policy(MODEL), LearnerOptions(tokenizer_dir=MODEL))
    change(learner, seed=0)
    learner.save(root)
    options = VllmOptions(model_dir=root / POLICY, max_length=LENGTH, num_sessions=64)
    engine = start_vllm(options)
    yield Pair(engine=engine, learner=learner, shared=root / "w")
    await engine.close()


def prompt(seed: int, length: int = 150) -> list[int]:
    return torch.randint(10, 2000, (length,), generator=torch.manual_seed(seed)).tolist()


async def logprobs(pair: Pair, ids: list[int], sample: Sample) -> torch.Tensor:
    """The learner's log-probs of what was sampled after `ids`."""
    scored = await pair.learner.logprobs([*ids, *sample.token_ids])
    return scored[len(ids) - 1 :]


async def test_the_policy_of_a_checkpoint_is_what_vllm_serves_from_its_start(pair: Pair) -> None:
    """Before any sync: vLLM has read the exported directory, and nothing else."""
    tokens = canary_tokens(2048)
    assert await canary_gap(pair.engine, pair.learner, tokens) < 1e-4  # type: ignore[arg-type]
    shipped = InlineLearner(load_policy(MODEL))
    with pytest.raises(WeightSyncMismatch):
        await canary_gap(pair.engine, shipped, tokens)  # type: ignore[arg-type]


async def test_vllm_has_no_semaphore_whose_file_would_stay(pair: Pair) -> None:
    """Its process is killed with the trainer, and nobody would remove the file."""
    assert not pair.engine.is_dead  # type: ignore[attr-defined]
    children = psutil.Process().children(recursive=True)
    cores = [process for process in children if "EngineCore" in process.name()]
    assert cores
    mapped = {file.path for core in cores for file in core.memory_maps()}
    assert [path for path in mapped if path.startswith("/dev/shm/sem.")] == []


async def test_logprobs_over_several_turns_are_the_learners(pair: Pair) -> None:
    ids = prompt(1)
    for turn in range(4):
        sample = await pair.sample(ids, seed=turn, stop_token_ids=())
        torch.testing.assert_close(
            torch.tensor(sample.logprobs), await logprobs(pair, ids, sample), atol=1e-4, rtol=0
        )
        ids = [*ids, *sample.token_ids, *prompt(10 + turn, 20)]
    assert pair.engine.stats().num_cached_tokens > 0  # type: ignore[attr-defined]


async def test_logprobs_are_those_at_the_temperature(pair: Pair) -> None:
    ids = prompt(2)
    sample = await pair.sample(ids, temperature=0.7, stop_token_ids=())
    model = load_policy(MODEL)
    model.load_state_dict(dict(pair.learner.publish().weights))
    with torch.no_grad():
        logits = model(torch.tensor([[*ids, *sample.token_ids]])).logits[0, len(ids) - 1 : -1]
    expected = (logits / 0.7).log_softmax(-1)
    picked = expected.gather(1, torch.tensor(sample.token_ids).unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(torch.tensor(sample.logprobs), picked, atol=1e-4, rtol=0)


async def test_a_seed_fixes_the_draw_whatever_else_is_decoded(pair: Pair) -> None:
    ids = prompt(3)
    alone = await pair.sample(ids, seed=7, stop_token_ids=())
    others = (pair.sample(prompt(20 + n), session=f"o{n}", seed=n) for n in range(20))
    among, *_ = await asyncio.gather(pair.sample(ids, seed=7, stop_token_ids=()), *others)
    other = await pair.sample(ids, seed=8, stop_token_ids=())
    assert alone.token_ids == among.token_ids != other.token_ids


async def test_a_turn_ends_with_its_stop_token_or_its_limit(pair: Pair) -> None:
    ids = prompt(4)
    free = await pair.sample(ids, temperature=0.0, stop_token_ids=())
    stop = free.token_ids[5]
    ended = await pair.sample(ids, temperature=0.0, stop_token_ids=(stop,))
    assert ended.stopped
    assert ended.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert not free.stopped
    assert len(free.token_ids) == 24


async def test_a_changed_policy_is_served_after_a_sync_and_nothing_is_left_of_the_file(
    pair: Pair,
) -> None:
    pair.change(1)
    pair.learner.rank.version += 1
    tokens = canary_tokens(2048)
    with pytest.raises(WeightSyncMismatch):
        await canary_gap(pair.engine, pair.learner, tokens)  # type: ignore[arg-type]
    await pair.sync()
    assert await canary_gap(pair.engine, pair.learner, tokens) < 1e-4  # type: ignore[arg-type]
    assert not pair.shared.exists()
    sample = await pair.sample(prompt(5))
    assert set(sample.weight_versions) == {pair.learner.version}


HEAD = pytest.param(
    "lm_head.weight",
    marks=pytest.mark.skipif(
        torch.cuda.is_available(),
        reason="on a GPU vLLM's tied head is the embedding; on a CPU it is packed by itself",
    ),
)


@pytest.mark.parametrize("left_out", [HEAD, "model.layers.1.mlp.down_proj.weight"])
async def test_a_sync_of_changed_weights_without_one_is_caught(
    pair: Pair, tmp_path: Path, left_out: str
) -> None:
    pair.change(2)
    path = tmp_path / "torn.safetensors"
    version = (await pair.learner.write_weights(path)).version
    weights = {name: tensor for name, tensor in load_file(path).items() if name != left_out}
    save_file(weights, path)
    await pair.engine.load_weights_file(path, version)  # type: ignore[attr-defined]
    with pytest.raises(WeightSyncMismatch, match="not transferred"):
        await canary_gap(pair.engine, pair.learner, canary_tokens(2048))  # type: ignore[arg-type]
    await pair.sync()
    assert await canary_gap(pair.engine, pair.learner, canary_tokens(2048)) < 1e-4  # type: ignore[arg-type]


DOWN = "model.layers.1.mlp.down_proj.weight"
NORM = "model.norm.weight"


async def test_what_the_canary_lets_through_is_found_by_the_bits(pair: Pair) -> None:
    await pair.sync()
    old = dict(pair.learner.publish().weights)
    with torch.no_grad():
        for parameter in pair.learner.rank._models.parameters.values():
            parameter.to_local().add_(1e-6)
    tampers = {
        ": .* differs, .* more$": (drifted(), nothing_of(old)),
        f": {DOWN} differs$": (one_bit_off(DOWN),),
        f": {DOWN} did not arrive$": (without(DOWN),),
        f": {NORM} did not arrive$": (without(NORM),),
        ": lm_head.weight did not arrive$": (without("lm_head.weight"),),
    }
    for said, changes in tampers.items():
        for change_file in changes:
            pair.learner.rank.version += 1
            with pytest.raises(WeightSyncMismatch, match=said):
                await pair.sync(Tampered(pair.learner, change_file))
            assert await canary_gap(pair.engine, pair.learner, canary_tokens(2048)) < 1e-4  # type: ignore[arg-type]
    await pair.sync()


async def test_what_was_computed_by_old_weights_is_not_taken_for_the_new_ones(pair: Pair) -> None:
    ids = prompt(11, 400)
    await pair.sample(ids, session="old")
    pair.change(3)
    pair.learner.rank.version += 1
    await pair.sync()
    sample = await pair.sample(ids, session="new", stop_token_ids=())
    expected = await logprobs(pair, ids, sample)
    torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)


async def test_what_is_asked_for_while_weights_change_is_of_the_new_ones(
    pair: Pair, tmp_path: Path
) -> None:
    ids, engine = prompt(12, 400), pair.engine
    await pair.sample(ids, session="old")
    pair.change(4)
    pair.learner.rank.version += 1
    version = (await pair.learner.write_weights(tmp_path / "w")).version
    await engine.start_update()  # type: ignore[attr-defined]
    asked = asyncio.create_task(pair.sample(ids, session="new", stop_token_ids=()))
    gone = asyncio.create_task(pair.sample(ids, session="gone"))
    await asyncio.sleep(0.1)
    engine.release("gone")  # type: ignore[attr-defined]
    await engine._load({"path": str(tmp_path / "w")})  # type: ignore[attr-defined]
    await engine.finish_update(version)  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="released"):
        await gone
    sample = await asked
    assert set(sample.weight_versions) == {version}
    expected = await logprobs(pair, ids, sample)
    torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=1e-4, rtol=0)


async def test_seconds_in_which_many_are_in_flight_and_released_count_once(pair: Pair) -> None:
    engine, started = pair.engine, time.perf_counter()
    before = engine.stats().busy_s  # type: ignore[attr-defined]
    names = [f"busy {number}" for number in range(16)]
    drawing = [
        asyncio.create_task(
            pair.sample(prompt(13, 30), session=name, max_new_tokens=900, stop_token_ids=())
        )
        for name in names
    ]
    async with asyncio.timeout(30.0):
        while engine.stats().busy_s < before + 0.5:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for name in names:
        engine.release(name)  # type: ignore[attr-defined]
    took = time.perf_counter() - started
    assert 0.5 <= engine.stats().busy_s - before <= took  # type: ignore[attr-defined]
    assert all(
        isinstance(each, EngineError)
        for each in await asyncio.gather(*drawing, return_exceptions=True)
    )
    assert engine.stats().busy_s - before <= took  # type: ignore[attr-defined]


@pytest.mark.invariant("a request that outlives a weight sync knows the version of every token")
async def test_a_request_goes_on_over_an_update_and_its_tokens_know_their_weights(
    pair: Pair,
) -> None:
    before = pair.learner.version
    engine = pair.engine
    drawing = asyncio.create_task(
        pair.sample(prompt(6, 30), session="long", max_new_tokens=900, stop_token_ids=())
    )
    short = await pair.sample(prompt(7), max_new_tokens=8, stop_token_ids=())
    assert set(short.weight_versions) == {before}
    pair.learner.rank.version += 1
    await pair.sync()
    sample = await drawing
    assert len(sample.token_ids) == 900
    assert list(sample.weight_versions) == sorted(sample.weight_versions)
    assert set(sample.weight_versions) == {before, before + 1}
    assert engine.weight_version == before + 1  # type: ignore[attr-defined]


async def test_a_released_session_ends_and_too_long_a_prompt_is_refused(pair: Pair) -> None:
    drawing = asyncio.create_task(
        pair.sample(prompt(8, 30), session="gone", max_new_tokens=900, stop_token_ids=())
    )
    await pair.sample(prompt(9), max_new_tokens=4)
    pair.engine.release("gone")  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="released"):
        await drawing
    with pytest.raises(EngineError, match="do not fit the context"):
        await pair.sample(prompt(9, 1020))


async def test_an_engine_that_fails_to_stop_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The garbage collector would wait for an open one, without end, in any thread of a trainer."""
    engine = start_vllm(VllmOptions(model_dir=MODEL, max_length=64, num_sessions=2))
    core = engine._llm.engine_core
    context, processes = core.ctx, core.resources.engine_manager

    def stop_and_fail(timeout: float | None = None) -> None:
        type(processes).shutdown(processes, timeout)
        raise RuntimeError("a process is gone")

    with monkeypatch.context() as patched:
        patched.setattr(processes, "shutdown", stop_and_fail)
        with pytest.raises(RuntimeError, match="is gone"):
            await engine.close()
    assert context._shadow_obj.closed
    assert not engine._sockets.exists()


STARTS_AND_WAITS = """
import sys, time
from pathlib import Path
from trainer.engines.vllm.options import ENVIRONMENT, VllmOptions
import os; os.environ.update(ENVIRONMENT)
from trainer.engines.vllm.engine import VllmEngine

if __name__ == "__main__":
    engine = VllmEngine(VllmOptions(model_dir=Path(sys.argv[1]), max_length=64, num_sessions=2))
    print("<started>", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
async def test_vllm_ends_with_a_trainer_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(STARTS_AND_WAITS)
    trainer = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(MODEL), stdout=asyncio.subprocess.PIPE
    )
    assert trainer.stdout is not None
    try:
        # Starting takes half a minute, and minutes on a machine that is busy with something else.
        async with asyncio.timeout(600):
            while b"<started>" not in await trainer.stdout.readline():
                assert trainer.returncode is None
        children = psutil.Process(trainer.pid).children(recursive=True)
        assert len(children) >= 2, "the engine core and its worker"
    finally:
        if trainer.returncode is None:
            trainer.kill()
        await trainer.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, children, timeout=60)
    assert not alive
