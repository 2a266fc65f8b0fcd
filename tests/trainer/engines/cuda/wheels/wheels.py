"""Whether the wheels for CUDA are here, and processes in which torch finds eight pretended H100."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[5]
DRIVER = ROOT / ".venv-gpu" / "driver" / "libcuda.so.1"
"""Compiled from `pretended_driver.c` by `make gpu-less`."""


def skip_without_wheels() -> None:
    """Skip the module where torch is not CUDA's build, or the driver was not compiled."""
    torch = pytest.importorskip("torch", reason="needs the wheels for CUDA: make gpu-less")
    if torch.version.cuda is None or not DRIVER.exists():
        pytest.skip("needs the wheels for CUDA: make gpu-less", allow_module_level=True)


def on_pretended_gpus(module: str, job: dict[str, Any] | None = None) -> Any:
    """Run a module of this folder with the pretended driver; return the JSON of its last line."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            f"tests.trainer.engines.cuda.wheels.{module}",
            json.dumps(job or {}),
        ],
        env=os.environ | {"LD_PRELOAD": str(DRIVER), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])
