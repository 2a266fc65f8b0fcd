"""The spec's engine section reaches the engine, and what cannot be had is said."""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3_5TextConfig, Qwen3Config

from hillclimb.protocol.events import RunWarning, TrainerStarted
from hillclimb.spec.training.model import YarnSpec
from tests.trainer.engines.vllm.late import import_vllm
from tests.trainer.fixtures.short_run import ShortRun
from trainer.attempt.scratch import SHARED_MEMORY, WEIGHTS_PREFIX
from trainer.engines import choose
from trainer.engines.vllm.options import VllmOptions
from trainer.errors import EngineError, SpecError
from trainer.inputs.model.directory import load_config
from trainer.weights.base import TimedSync
from trainer.weights.digests import WeightDigests
from trainer.weights.file_system import FileSystemSync

BUILDS = "trainer.engines.vllm.builds"


def _platform() -> Any:
    """Return the platform that vLLM runs on."""
    return importlib.import_module("vllm.platforms").current_platform


class Starting:
    """In place of vLLM: keeps its options and does not start."""

    def __init__(self) -> None:
        self.options: list[VllmOptions] = []

    def __call__(self, options: VllmOptions) -> Any:
        self.options.append(options)
        raise EngineError("seen enough")


class TakesAnyFile:
    """In place of vLLM: an engine that only takes files."""

    def __init__(self, _: VllmOptions) -> None: ...

    async def load_weights_file(self, path: Path, version: int) -> WeightDigests: ...

    async def close(self) -> None: ...


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "why_not_vllm", lambda *_: "vLLM is not installed")


@pytest.mark.usefixtures("without_vllm")
async def test_auto_falls_back_to_torch_and_says_so(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, engine={"type": "auto"}, schedule={"total_steps": 1})
    await run.train()
    assert [event.engine for event in run.events(TrainerStarted)] == ["torch"]
    warning = run.events(RunWarning)[0]
    assert warning.code == "engine_fallback"
    assert "because vLLM is not installed" in warning.message


@pytest.mark.usefixtures("without_vllm")
@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ({"type": "vllm"}, "engine.type is vllm, but vLLM is not installed"),
        ({"type": "auto", "dtype": "bfloat16"}, "bfloat16 needs vLLM, but vLLM is not installed"),
    ],
)
async def test_what_needs_vllm_is_refused_without_it(
    tmp_path: Path, engine: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        ShortRun(tmp_path, engine=engine).build()


@pytest.mark.long
async def test_auto_falls_back_for_heads_that_vllm_cannot_do(tmp_path: Path) -> None:
    import_vllm()
    if not _platform().is_cpu():
        pytest.skip("a GPU build of vLLM has kernels for any head")
    run = ShortRun(tmp_path, engine={"type": "auto"}, schedule={"total_steps": 1})
    await run.train()
    assert [event.engine for event in run.events(TrainerStarted)] == ["torch"]
    assert "no attention for heads of 8" in run.events(RunWarning)[0].message


@pytest.mark.invariant("where vLLM returns no routes, the torch engine records those to replay")
@pytest.mark.parametrize("kind", ["auto", "vllm"])
async def test_routes_to_replay_come_from_torch_where_vllm_returns_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    import_vllm()
    if not _platform().is_cpu():
        pytest.skip("a GPU build of vLLM returns them")
    # Heads of the tiny model are too small for its kernels, which is another reason.
    monkeypatch.setattr(choose, "why_not_vllm", lambda *_: None)
    run = ShortRun(
        tmp_path,
        num_experts=4,
        engine={"type": kind},
        learner={"routing_replay": True},
        schedule={"total_steps": 1},
    )
    if kind == "vllm":
        with pytest.raises(SpecError, match=r"set engine\.type to torch, or leave"):
            run.build()
        return
    await run.train()
    assert [event.engine for event in run.events(TrainerStarted)] == ["torch"]
    assert "does not return the experts" in run.events(RunWarning)[0].message


def test_an_adapter_beside_experts_is_not_sent_to_a_cpu_that_dies_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_vllm()
    if not _platform().is_cpu():
        pytest.skip("a GPU build of vLLM serves it")
    # Heads of the tiny model are too small for its kernels, which is another reason.
    monkeypatch.setattr(choose, "why_not_vllm", lambda *_: None)
    run = ShortRun(
        tmp_path,
        num_experts=4,
        engine={"type": "vllm", "weight_transport": "lora"},
        learner={"lora": {"rank": 4, "target_modules": ["q_proj", "v_proj"]}},
    )
    config = load_config(run.root / "model")
    with pytest.raises(SpecError, match=r"set engine\.weight_transport to auto"):
        choose.choose_engine(run.spec, config, run.root / "model", dict)


def test_adapters_in_float32_are_not_sent_to_a_gpu_whose_kernels_take_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import_vllm()
    builds = importlib.import_module(BUILDS)
    monkeypatch.setattr(builds, "current_platform", OnGpu)
    adapters = VllmOptions(model_dir=Path(), max_length=64, num_sessions=2, lora_rank=4)
    assert "engine.dtype is float32" in (builds.why_no_adapters(adapters) or "")
    assert builds.why_no_adapters(replace(adapters, dtype="bfloat16")) is None
    assert builds.why_no_adapters(replace(adapters, lora_rank=None)) is None


class OnGpu:
    """vLLM's platform, as far as it is asked."""

    @staticmethod
    def is_cpu() -> bool:
        return False


async def test_replay_for_a_model_without_experts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="needs a model with experts"):
        ShortRun(tmp_path, learner={"routing_replay": True}).build()


@pytest.mark.invariant("vLLM's CPU build never leaves GPUs idle")
def test_the_cpu_build_is_refused_beside_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    import_vllm()
    if not _platform().is_cpu():
        pytest.skip("this is no CPU build")
    config = Qwen3Config(head_dim=64)
    assert importlib.import_module(BUILDS).why_not(config, "float32") is None
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "vLLM's CPU build, on a machine with GPUs" in importlib.import_module(BUILDS).why_not(
        config, "float32"
    )


@pytest.mark.parametrize(
    ("key_dim", "dtype", "sentence"),
    [
        (128, "bfloat16", None),
        (128, "float32", "set engine.dtype to bfloat16, or engine.type to torch"),
        (32, "bfloat16", "the model's are of 32 \\(keys\\) and 128 \\(values\\)"),
    ],
)
def test_linear_attention_that_a_cpu_build_would_die_of_is_refused(
    key_dim: int, dtype: str, sentence: str | None
) -> None:
    import_vllm()
    if not _platform().is_cpu():
        pytest.skip("this is no CPU build")
    refusal = importlib.import_module(BUILDS).why_not(
        Qwen3_5TextConfig(head_dim=64, linear_key_head_dim=key_dim), dtype
    )
    assert (refusal is None) is (sentence is None)
    assert re.search(sentence or "", refusal or "")


async def test_torch_is_taken_without_asking_for_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "why_not_vllm", lambda *_: pytest.fail("vLLM was looked for"))
    run = ShortRun(tmp_path, engine={"type": "torch"})
    await run.finish_without_training(run.build())
    assert not run.events(RunWarning)


async def test_every_key_reaches_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = import_vllm()
    starting = Starting()
    monkeypatch.setattr(vllm, "VllmEngine", starting)
    monkeypatch.setattr(f"{BUILDS}.why_not", lambda *_: None)
    engine = {
        "type": "vllm",
        "dtype": "bfloat16",
        "kv_cache_gib": 3,
        "gpu_memory_utilization": 0.4,
        "tensor_parallel_size": 2,
    }
    rope = YarnSpec(factor=2.0, original_max_position_embeddings=1600).model_dump()
    run = ShortRun(tmp_path, engine=engine, model={"rope": rope}, experimental=True)
    with pytest.raises(EngineError, match="seen enough"):
        run.build()
    options = starting.options[0]
    assert options.environment()["VLLM_CPU_KVCACHE_SPACE"] == "3"
    arguments = options.engine_arguments()
    assert (arguments["dtype"], arguments["tensor_parallel_size"]) == ("bfloat16", 2)
    assert arguments["gpu_memory_utilization"] == 0.4
    assert arguments["max_model_len"] == run.spec.rollout.max_sequence_length
    assert arguments["max_num_seqs"] == run.spec.environment.max_concurrent_rollouts
    assert arguments["hf_overrides"]["rope_parameters"]["factor"] == 2.0
    assert arguments["hf_overrides"]["max_position_embeddings"] == 3200


@pytest.mark.parametrize("transport", ["shm", "disk"])
async def test_weights_pass_through_the_chosen_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    vllm = import_vllm()
    monkeypatch.setattr(vllm, "VllmEngine", TakesAnyFile)
    monkeypatch.setattr(f"{BUILDS}.why_not", lambda *_: None)
    run = ShortRun(tmp_path, engine={"type": "vllm", "weight_transport": transport})
    timed = run.build()._parts.workers.weights
    run.journal.abandon()
    assert isinstance(timed, TimedSync)
    sync = timed.inner
    assert isinstance(sync, FileSystemSync)
    if transport == "disk":
        assert sync._directory == run.dir().path / "weights"
        return
    assert sync._directory.is_relative_to(SHARED_MEMORY) is SHARED_MEMORY.is_dir()
    assert sync._directory.name.startswith(f"{WEIGHTS_PREFIX}{os.getpid()}-")


@pytest.mark.parametrize(("setting", "value"), [("kv_cache_dtype", "fp8"), ("kv_offload_gib", 8)])
async def test_a_cache_for_gpus_is_refused_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: object
) -> None:
    monkeypatch.setattr(choose, "why_not_vllm", lambda *_: None)
    engine = {"type": "vllm", "dtype": "bfloat16", setting: value}
    run = ShortRun(tmp_path, engine=engine, experimental=True)
    with pytest.raises(SpecError, match=f"engine.{setting} {value} needs a GPU"):
        await run.train()
