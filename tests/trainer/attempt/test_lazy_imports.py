"""What a worker's process does not import: seconds of its start, for nothing."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from hillclimb.process.lazy_imports import gc_paused_import

HEAVY = ("transformers", "vllm", "wandb")


@pytest.mark.parametrize("modules", ["trainer.__main__", "trainer.workers.ray.actors"])
def test_what_every_process_imports_is_light(modules: str) -> None:
    """The rollout worker's part of it as well; learner and engine import theirs when they start."""
    code = f"import sys, {modules}, trainer.rollouts.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "torch" in found
    assert found.isdisjoint(HEAVY)


def test_garbage_is_collected_again_after_imports() -> None:
    with gc_paused_import():
        assert not gc.isenabled()
    assert gc.isenabled()
