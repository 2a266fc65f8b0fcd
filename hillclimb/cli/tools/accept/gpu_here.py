"""Finds out, before a run is submitted, that the only runner it could go to has no GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from hillclimb.client.errors import LadderRefused
from hillclimb.stack import control, doctor
from hillclimb.stack.options import StackOptions
from hillclimb.stack.state.records import StackRecord

TRAINER_PYTHON = "HILLCLIMB_TRAINER_PYTHON"
LOOPBACK = ("127.0.0.1", "localhost")
IMPORT_S = 60.0
"""How long torch may take to load."""
_SCRIPT = """
import json, torch
built_for = torch.version.cuda or getattr(torch.version, "hip", None)
print(json.dumps([torch.__version__, built_for, torch.cuda.device_count()]))
"""


@dataclass(frozen=True, slots=True)
class _Torch:
    """The torch of a trainer: its version, the CUDA or ROCm it is built for, and its GPUs."""

    version: str
    built_for: str | None
    num_gpus: int


def gpus_here(url: str, options: StackOptions) -> int | None:
    """Return how many GPUs the runner trains with; None where that is not known here.

    It is known where the service at `url` is this machine's own: its runner's process says with
    which interpreter and which visible devices it trains. Another runner, or a service elsewhere,
    may have a GPU that nobody here can see: then the run tells.

    Raises:
        LadderRefused: the torch of that runner sees no GPU; a sentence with what would do.
    """
    record = control.status(options.state_dir)
    environment = _environment_of_runner(record) if _is_of(record, url) else None
    if environment is None or len(doctor.reporting_runners(options, record) or ()) > 1:
        return None
    torch = _torch_of(environment)
    if torch is None:
        return None
    if torch.num_gpus:
        return torch.num_gpus
    python = environment[TRAINER_PYTHON]
    seen = (
        f"torch {torch.version} of {python} is built for CPUs"
        if torch.built_for is None
        else f"torch {torch.version} of {python} sees no GPU"
    )
    raise LadderRefused(
        f"nothing was started, as the runner of this machine would train without a GPU ({seen}):"
        " rent one with `--infra CLOUD --accelerators NAME:1`, or start the service or another"
        " runner where torch sees one (docs/own-gpu.md)"
    )


def _is_of(record: StackRecord, url: str) -> bool:
    address = urlsplit(url)
    return address.hostname in LOOPBACK and address.port == record.ports.get("api")


def _environment_of_runner(record: StackRecord) -> Mapping[str, str] | None:
    """Return the variables of the stack's runner; None if it does not run or is another user's."""
    runner = record.services.get("runner")
    if runner is None or runner.process is None or not runner.process.identity.alive():
        return None
    with suppress(psutil.Error):
        environment = psutil.Process(runner.process.pid).environ()
        return environment if TRAINER_PYTHON in environment else None
    return None


def _torch_of(environment: Mapping[str, str]) -> _Torch | None:
    """Return what a trainer of these variables would compute with; None where it cannot say."""
    try:
        completed = subprocess.run(
            [environment[TRAINER_PYTHON], "-c", _SCRIPT],
            check=True,
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            env=dict(environment),
        )
        return _Torch(*json.loads(completed.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):  # the run has the reason
        return None
