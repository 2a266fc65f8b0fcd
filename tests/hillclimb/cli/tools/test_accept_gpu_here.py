"""`hillclimb accept gpu` where the only runner is this machine's own, and its torch sees no GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.client import Client
from hillclimb.client.errors import NotConfigured
from hillclimb.spec.run import RunSpec
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ProcessRecord, ServiceRecord, StackRecord
from hillclimb.stack.system.processes import identify
from tests.api.fixtures.serving import Served
from tests.hillclimb.cli.conftest import Invoke, from_json


def write_python(folder: Path, *, built_for: str | None, num_gpus: int) -> Path:
    """Write an interpreter whose torch says that it sees so many GPUs."""
    (folder / "torch.py").write_text(
        "import types\n__version__ = '2.11.0'\n"
        f"version = types.SimpleNamespace(cuda={built_for!r}, hip=None)\n"
        f"cuda = types.SimpleNamespace(device_count=lambda: {num_gpus})\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the variables of a stack's runner."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import signal; signal.pause()"],
        env=os.environ | {"HILLCLIMB_TRAINER_PYTHON": str(tmp_path / "python")},
    )
    yield process
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture
def stack(
    hc: Invoke,
    served: Served,
    runner: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> StateDirectory:
    """The state directory of a stack whose API is the served one."""
    state = StateDirectory(tmp_path / "state")
    state.create()
    identity = identify(runner.pid)
    assert identity is not None
    service = ServiceRecord(
        state="ready",
        process=ProcessRecord(pid=identity.pid, started=identity.started),
        fingerprint="",
        log="",
        stop_signal=signal.SIGTERM,
        stop_s=1.0,
    )
    port = urlsplit(served.url).port
    assert port is not None
    state.write(StackRecord(state="ready", ports={"api": port}, services={"runner": service}))
    monkeypatch.setenv("HILLCLIMB_STATE_DIR", str(state.path))
    return state


@pytest.mark.parametrize(
    ("built_for", "seen"), [(None, "is built for CPUs"), ("12.8", "sees no GPU")]
)
@pytest.mark.usefixtures("stack")
def test_without_a_gpu_it_is_refused_before_a_run_is_made(
    hc: Invoke, tmp_path: Path, built_for: str | None, seen: str
) -> None:
    write_python(tmp_path, built_for=built_for, num_gpus=0)
    refused = hc("accept", "gpu")
    assert refused.exit_code == Exit.REFUSED
    assert refused.stdout == ""
    assert seen in refused.stderr
    assert "--infra CLOUD --accelerators NAME:1" in refused.stderr
    assert "docs/own-gpu.md" in refused.stderr
    assert from_json(hc("runs", "--json"))["data"] == []


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(
    ("num_gpus", "options", "engine"),
    [
        (1, (), ("vllm", "ipc")),
        (2, (), ("auto", "auto")),
        (1, ("--set", "engine.type=torch"), ("torch", "auto")),
        (1, ("--set", "engine.type=vllm"), ("vllm", "ipc")),
        (1, ("--set", "engine.tensor_parallel_size=2"), ("auto", "auto")),
        (0, ("--infra", "lambda", "--accelerators", "H100:1"), ("vllm", "ipc")),
        (0, ("--infra", "lambda", "--accelerators", "H100:2"), ("auto", "auto")),
    ],
)
def test_engine_and_learner_share_the_only_gpu(
    hc: Invoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num_gpus: int,
    options: tuple[str, ...],
    engine: tuple[str, str],
) -> None:
    planned: list[RunSpec] = []

    def plan(client: Client, spec: dict[str, Any], **_: object) -> None:
        planned.append(RunSpec.model_validate(spec))
        raise NotConfigured("the plan is all that is looked at")

    monkeypatch.setattr(Client, "plan", plan)
    write_python(tmp_path, built_for="12.8", num_gpus=num_gpus)
    assert hc("accept", "gpu", *options).exit_code == Exit.ERROR
    (spec,) = planned
    assert (spec.engine.type, spec.engine.weight_transport) == engine


@pytest.mark.usefixtures("stack")
def test_with_a_gpu_the_plan_is_asked_first(hc: Invoke, tmp_path: Path) -> None:
    write_python(tmp_path, built_for="12.8", num_gpus=1)
    failed = hc("accept", "gpu", "--model", "hf:mistralai/Mistral-7B")
    assert failed.exit_code == Exit.ERROR
    assert "plan" in failed.stdout


def test_a_service_elsewhere_may_have_a_gpu_that_is_not_seen_from_here(
    hc: Invoke, stack: StateDirectory, tmp_path: Path
) -> None:
    write_python(tmp_path, built_for=None, num_gpus=0)
    stack.write(stack.read().model_copy(update={"ports": {"api": 1}}))
    failed = hc("accept", "gpu", "--model", "hf:mistralai/Mistral-7B")
    assert failed.exit_code == Exit.ERROR
    assert "plan" in failed.stdout
