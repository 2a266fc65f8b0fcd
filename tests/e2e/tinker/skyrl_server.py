"""SkyRL's own Tinker server in a process, in an environment of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-skyrl" / "bin" / "python"
LAUNCHER = Path(__file__).with_name("serve_skyrl.py")
START_S, STOP_S = 180.0, 30.0
CACHE = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", "/tmp/hillclimb-jax"))
FIGURES = "HILLCLIMB_TINKER_FIGURES"
"""Names the folder for what the tests measure; without it they write nothing."""
MARKS = [
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-skyrl: `make e2e` installs it"),
    # The SDK never closes the connections of its clients.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning"
    ),
]
TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
"""What SkyRL wants beside a `tokenizer.json`."""
BACKEND = {
    "max_lora_adapters": 6,
    "max_lora_rank": 8,
    "train_micro_batch_size": 8,
    "sample_max_num_sequences": 32,
}
"""Fixed sizes: what is compiled for them once is used again."""


@contextmanager
def skyrl_server(model_dir: Path, state_dir: Path, *, port: int) -> Iterator[str]:
    """Serve a model; what was saved in `state_dir` is there again after the next start."""
    state_dir.mkdir(parents=True, exist_ok=True)
    (model_dir / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
        "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [
        *(str(PYTHON), str(LAUNCHER), "api", "--port", str(port)),
        *("--base-model", str(model_dir), "--backend", "jax"),
        *("--backend-config", json.dumps(BACKEND)),
        *("--database-url", f"sqlite:///{state_dir}/tinker.db"),
        *("--checkpoints-base", str(state_dir / "checkpoints")),
        *("--session-timeout-sec", "30", "--session-cleanup-interval-sec", "2"),
    ]
    with (state_dir / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url)
        yield url
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    """Until it answers; its engine may need longer, which the first request then waits for."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended: see server.log"
        try:
            if httpx.get(f"{url}/api/v1/healthz", timeout=5.0).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise AssertionError("the server did not answer")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and the engine that it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)
