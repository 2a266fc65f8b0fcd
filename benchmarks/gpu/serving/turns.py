"""vLLM and a learner that take turns on one GPU: memory, time and log-probs of a whole step."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.gpu.setting import GIB, Cases, Figures, Setting, synchronize
from hillclimb.hardware.model.shipped import assets_dir
from hillclimb.protocol.rundir import POLICY
from hillclimb.spec.training.algorithm import AlgorithmSpec, OffPolicyCorrectionSpec
from tests.trainer.fixtures.families import VOCAB, family_model
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.canary import canary_tokens
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.engines.vllm.options import VllmOptions
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.types import Sample, SamplingParams
from trainer.weights.chunks import IpcSync
from trainer.workers.phase_switch import PhaseSwitch, SwitchedSync

if TYPE_CHECKING:
    from trainer.engines.vllm.engine import VllmEngine

CORRECTED = AlgorithmSpec(off_policy_correction=OffPolicyCorrectionSpec(tis_ratio_type="token"))
ROLLOUTS = 4
"""Rollouts of a group, which begin with the same prompt."""
ALIKE = 0.99
"""Of a token's experts; two that are nearly equal change places with the last bits."""
KEPT = ("rollout_train_logprobs", "tis_", "grad_norm", "tokens_per_second", "mfu")


def has_vllm() -> bool:
    """Tell whether vLLM itself is here; a bare image may have its copy of FlashAttention alone."""
    return any(each.metadata["Name"].startswith("vllm") for each in distributions())


class Beside(InlineLearner):
    """A learner on the GPU that an engine has while the learner waits."""

    def __init__(self, rank: LearnerRank) -> None:
        self.rank = rank

    async def park(self) -> None:
        """See `Parks.park`."""
        await asyncio.to_thread(self.rank.park)

    async def unpark(self) -> None:
        """See `Parks.unpark`."""
        await asyncio.to_thread(self.rank.unpark)


def taking_turns(setting: Setting) -> Cases:
    """A step of colocation on layers of 8B: draw, sleep, learn, wake, sync by IPC, draw again."""
    if not has_vllm():
        yield "engine", {"skipped": "vLLM is not installed"}
        return
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        turns = Turns(setting, Path(folder))
        try:
            yield "start", turns.start()
            for name, phase in (
                ("first_sync", turns.sync),
                ("equal", turns.compare),
                ("drawn", turns.draw),
                ("asleep", turns.sleep),
                ("step", turns.step),
                ("second_sync", turns.sync),
                ("equal_again", turns.compare),
                ("drawn_again", turns.draw),
            ):
                yield name, runner.run(phase())
        finally:
            runner.run(turns.close())


class Turns:
    """One engine and one rank on the same device."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        self._setting = setting
        self._learner = Beside(setting.rank(setting.size(9, 2), algorithm=CORRECTED))
        self._folder = folder
        self._engine: VllmEngine | None = None
        self._groups: list[tuple[Sequence[int], list[Sample]]] = []

    def start(self) -> Figures:
        """Start vLLM on the learner's policy; it sleeps until the first sync, as in a run."""
        from trainer.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - not everywhere

        setting = self._setting
        self._learner.save(self._folder)
        options = VllmOptions(
            model_dir=self._folder / POLICY,
            max_length=setting.size(8192, 64),
            num_sessions=setting.size(64, 4),
            dtype="bfloat16",
            gpu_memory_utilization=0.5,
            by_chunks=True,
            sleeps=True,
        )
        started = time.perf_counter()
        self._engine = engine = VllmEngine(options)
        seconds = time.perf_counter() - started
        self._switch = PhaseSwitch(self._learner, [engine], level=2)
        self._sync = SwitchedSync(self._switch, IpcSync(self._learner, [engine]))
        cache = engine._llm.vllm_config.cache_config.kv_cache_size_tokens  # noqa: SLF001
        return {"seconds": seconds, "cache_tokens": cache, **self._memory()}

    async def sync(self) -> Figures:
        """Give the GPU to the engine, with the learner's weights; before, the engine sleeps."""
        assert self._engine is not None
        if not await self._engine._llm.is_sleeping():  # noqa: SLF001
            await self._engine.sleep(2)
        started = time.perf_counter()
        # Raises where one tensor arrives otherwise than it was sent.
        await self._sync.sync()
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "is_of_the_learners_version": self._engine.weight_version == self._learner.version,
            **self._memory(),
        }

    async def compare(self) -> Figures:
        """The same tokens scored by both, each in bfloat16."""
        assert self._engine is not None
        ids = list(canary_tokens(self._setting.shape.vocab_size))[: self._setting.size(512, 32)]
        ours = await self._learner.logprobs(ids)
        gaps = (await self._engine.logprobs(ids) - ours).abs()
        return {"mean": float(gaps.mean()), "largest": float(gaps.max())}

    async def draw(self) -> Figures:
        """Groups of rollouts at once, and how fast they came."""
        engine, setting = self._engine, self._setting
        assert engine is not None
        length = setting.size(512, 8)
        params = SamplingParams(max_new_tokens=length, temperature=1.0, stop_token_ids=())
        version = self._learner.version
        before, started = engine.stats(), time.perf_counter()
        self._groups = []
        prompts = {
            f"{version}/{number}": self._prompt(number + 100 * version)
            for number in range(setting.size(16, 1))
        }
        drawn = await asyncio.gather(
            *(
                engine.sample(ids, params, session=f"{key}/{k}", prefix_key=key)
                for key, ids in prompts.items()
                for k in range(ROLLOUTS)
            )
        )
        seconds = time.perf_counter() - started
        for number, ids in enumerate(prompts.values()):
            self._groups.append((ids, drawn[ROLLOUTS * number : ROLLOUTS * (number + 1)]))
        after = engine.stats()
        tokens = sum(len(each.token_ids) for each in drawn)
        return {
            "seconds": seconds,
            "new_tokens_per_second": tokens / seconds,
            "prompt_tokens": after.num_prefill_tokens - before.num_prefill_tokens,
            "cached_tokens": after.num_cached_tokens - before.num_cached_tokens,
            "is_complete": tokens == length * len(drawn),
            "is_of_one_version": {v for each in drawn for v in each.weight_versions} == {version},
        }

    async def sleep(self) -> Figures:
        """The engine gives its memory back."""
        started = time.perf_counter()
        await self._switch.to_learner()
        return {"seconds": time.perf_counter() - started, **self._memory()}

    async def step(self) -> Figures:
        """Learn from two of the groups: the correction says how far the engine's numbers were."""
        sequences = [
            self._sequence(ids, sample, 1.0 if index % 2 else -1.0)
            for ids, samples in self._groups[:2]
            for index, sample in enumerate(samples)
        ]
        started = time.perf_counter()
        metrics = await self._learner.step(Batch(mini_batches=(tuple(sequences),)))
        synchronize(self._setting.device)
        figures: dict[str, Any] = {
            name.removeprefix("policy/"): value
            for name, value in metrics.items()
            if any(each in name for each in KEPT)
        }
        return {"seconds": time.perf_counter() - started, **figures, **self._memory()}

    async def close(self) -> None:
        """End vLLM's processes."""
        if self._engine is not None:
            await self._engine.close()

    def _prompt(self, seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        size = (self._setting.size(4096, 16),)
        drawn: list[int] = torch.randint(
            self._setting.shape.vocab_size, size, generator=generator
        ).tolist()
        return drawn

    @staticmethod
    def _sequence(ids: Sequence[int], sample: Sample, advantage: float) -> TrainingSequence:
        prompt, new = len(ids), len(sample.token_ids)
        return TrainingSequence(
            token_ids=(*ids, *sample.token_ids),
            action_mask=(False,) * prompt + (True,) * new,
            logprobs=(0.0,) * prompt + tuple(sample.logprobs),
            prompt_length=prompt,
            advantage=advantage,
            temperature=1.0,
        )

    def _memory(self) -> Figures:
        """GiB of the GPU in use, by whoever it is."""
        if self._setting.device == "cpu":
            return {}
        left, total = torch.cuda.mem_get_info()
        return {"used_gib": (total - left) / GIB}


def routes(setting: Setting) -> Cases:
    """vLLM says which experts a token went through: those of the trainer's own engine."""
    if not has_vllm() or setting.rehearses:
        yield "experts", {"skipped": "only vLLM's build for GPUs returns them"}
        return
    yield "experts", asyncio.run(_routes_beside_torch())


async def _routes_beside_torch() -> Figures:
    from trainer.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - not everywhere

    model = family_model("qwen3_moe")
    drawn: list[int] = torch.randint(0, VOCAB, (150,), generator=torch.manual_seed(1)).tolist()
    params = SamplingParams(max_new_tokens=32, temperature=1.0, stop_token_ids=(), routes_from=0)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = assets_dir() / "tiny-qwen3-a"
        InlineLearner(model, LearnerOptions(tokenizer_dir=tokenizer)).save(Path(folder))
        options = VllmOptions(
            model_dir=Path(folder) / POLICY,
            max_length=512,
            num_sessions=8,
            architecture="Qwen3MoeForCausalLM",
            positions={"rope_parameters": model.config.to_dict()["rope_parameters"]},
            gpu_memory_utilization=0.3,
            returns_routes=True,
        )
        engine = await asyncio.to_thread(VllmEngine, options)
        try:
            sample = await engine.sample(drawn, params, session="one", prefix_key="")
        finally:
            await engine.close()
    own = TorchEngine(
        model.config, model.state_dict(), options=TorchEngineOptions(records_routes=True)
    )
    ids = [*drawn, *sample.token_ids]
    last = SamplingParams(max_new_tokens=1, temperature=1.0, stop_token_ids=(), routes_from=0)
    true = (await own.sample(ids, last, session="one", prefix_key="")).routes
    assert sample.routes is not None
    assert true is not None
    length = min(len(sample.routes), len(true))
    same = np.sort(sample.routes[:length], -1) == np.sort(true[:length], -1)
    return {
        "shape": list(sample.routes.shape),
        "same": float(same.mean()),
        "is_of_every_token": len(sample.routes) >= len(ids) - 1,
        "is_nearly_the_same": bool(same.mean() > ALIKE),
    }
