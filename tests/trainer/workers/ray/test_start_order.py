"""Who starts when, and that all of them see the attempt's directory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ray = pytest.importorskip("ray", reason="Ray is not installed here")

from tests.trainer.fixtures.scripted import CountingProvider, solved_by_done  # noqa: E402
from tests.trainer.fixtures.short_run import ShortRun, short_spec  # noqa: E402
from tests.trainer.workers.ray.test_cluster import TWO_MACHINES, running  # noqa: E402
from trainer.attempt.startup import StartupPhases  # noqa: E402
from trainer.errors import SpecError  # noqa: E402
from trainer.workers.factory import WorkerFactory  # noqa: E402
from trainer.workers.ray import workers  # noqa: E402
from trainer.workers.ray.engine_actor import EngineActor, EngineFacts  # noqa: E402
from trainer.workers.ray.learner_actor import LearnerActor  # noqa: E402

__all__ = ["running"]
pytestmark = pytest.mark.long
STARTED, IMPORTED = "engine-started", "rank-imported"
IMPORTS_S = 60.0


class SlowEngine(EngineActor):
    """In place of a vLLM that looks for a while how much of the GPU is free."""

    async def start(self) -> EngineFacts:
        """Take until the rank has imported what it needs, and look in vain for a limited time."""
        until = time.monotonic() + IMPORTS_S
        imported = self._factory.attempt_dir / IMPORTED
        while not imported.exists() and time.monotonic() < until:  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.05)
        (self._factory.attempt_dir / STARTED).touch()
        return EngineFacts(name="slow", fallback=None)


class LookingRank(LearnerActor):
    """Says whether the engine had started when it was told to load the model."""

    def import_learner(self) -> None:
        """Import, and say so while the engine starts."""
        super().import_learner()
        assert not (self._factory.attempt_dir / STARTED).exists()
        assert "trainer.learners.rank" in sys.modules
        assert not torch.cuda.is_initialized(), "the engine measures how much of the GPU is free"
        (self._factory.attempt_dir / IMPORTED).touch()

    def start(self, address: str) -> int:
        """Look, and load nothing."""
        del address
        there = [(self._factory.attempt_dir / name).exists() for name in (STARTED, IMPORTED)]
        raise SpecError(f"started: {there[0]}, imported meanwhile: {there[1]}")


async def test_a_rank_imports_while_the_engine_beside_it_starts_and_loads_nothing_onto_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "EngineActor", SlowEngine)
    monkeypatch.setattr(workers, "LearnerActor", LookingRank)
    run = ShortRun(
        tmp_path,
        experimental=True,
        placement={"type": "ray", "learner_ranks": 1},
        engine={"type": "vllm", "weight_transport": "ipc"},
    )
    with pytest.raises(SpecError, match="started: True, imported meanwhile: True"):
        run.build(provider=CountingProvider(solved_by_done))
    assert not ray.is_initialized()


@pytest.mark.parametrize("running", [TWO_MACHINES], indirect=True)
def test_a_rank_that_does_not_see_the_attempts_directory_is_told_before_it_loads(
    running: tuple[subprocess.Popen[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(LearnerActor):
        """A rank on a machine with a disk of its own."""

        def __init__(self, factory: WorkerFactory, rank: int, size: int) -> None:
            super().__init__(replace(factory, attempt_dir=tmp_path / "its-own"), rank, size)

    monkeypatch.setattr(workers, "LearnerActor", Elsewhere)
    _, address = running
    spec = short_spec(
        tmp_path,
        experimental=True,
        placement={"type": "ray", "learner_ranks": 1},
        engine={"weight_transport": "disk"},
    )
    factory = WorkerFactory(
        spec=spec, model_dir=tmp_path, vocab_size=1, attempt_dir=tmp_path, attempt=1
    )
    with pytest.raises(SpecError, match=r"learner-0 cannot read .* share a disk"):
        workers.ray_workers(factory, StartupPhases(lambda _: None), {"RAY_ADDRESS": address})
    assert not ray.is_initialized()
    assert list(tmp_path.iterdir()) == []
