"""What a worker's process does not import: seconds of its start, for nothing."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from pathlib import Path

from hillclimb.process.lazy_imports import gc_paused_import
from tests.trainer.fixtures.short_run import short_spec
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.workers.factory import WorkerFactory

HEAVY = ("transformers", "vllm", "wandb")
ROLLOUTS = """
import pickle, sys
from pathlib import Path
from trainer.envs.fleet import choice
from trainer.envs.openenv import provider
from trainer.workers.ray.engine_actor import EngineActor
from trainer.workers.ray.proxies import RemoteEngine
from trainer.workers.ray.rollout_actor import RolloutActor
for file in sys.argv[1:]:
    RolloutActor(pickle.loads(Path(file).read_bytes()), None, 0)
print(*sys.modules)
"""
"""A process of a rollout worker, as Ray starts it: with the pickled factory, and its engine's
proxy, in whose place is nothing. To look an engine up by name, Ray imports its actor's class."""


def modules_of(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_a_process_of_the_trainer_imports_neither_transformers_nor_vllm() -> None:
    """Learner and engine import theirs when they start."""
    found = modules_of(
        "import sys, trainer.__main__, trainer.workers.ray.learner_actor; print(*sys.modules)"
    )
    assert found.isdisjoint(HEAVY)


def test_a_learner_without_adapters_does_without_peft() -> None:
    found = modules_of("import sys, trainer.learners.rank; print(*sys.modules)")
    assert "trainer.learners.model.policy" in found
    assert "peft" not in found


def test_a_rollout_worker_does_without_torch(tmp_path: Path) -> None:
    """Torch would more than double the memory of a process that computes nothing."""
    model = write_tiny_model(tmp_path / "model")
    files = []
    for style in ("hillclimb", "skyrl"):
        factory = WorkerFactory(
            spec=short_spec(model, prompt={"style": style}),
            model_dir=model,
            vocab_size=300,
            attempt_dir=tmp_path,
            attempt=1,
        )
        files.append(tmp_path / f"{style}.pickle")
        files[-1].write_bytes(pickle.dumps(factory))
    found = modules_of(ROLLOUTS, *map(str, files))
    assert "trainer.rollouts.worker" in found
    assert found.isdisjoint({"torch", *HEAVY})


def test_garbage_is_collected_again_after_imports() -> None:
    with gc_paused_import():
        assert not gc.isenabled()
    assert gc.isenabled()
