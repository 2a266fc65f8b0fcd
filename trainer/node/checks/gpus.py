"""The GPUs of one machine, as `nvidia-smi` lists them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hillclimb.spec.backend.counts import counted, either

FIELDS = "index,uuid,name,memory.used,temperature.gpu,ecc.errors.uncorrected.volatile.total"
ANSWER_S = 30.0
"""`nvidia-smi` takes seconds for eight GPUs, and never returns where one hangs."""
IN_USE_MIB = 2048.0
"""A driver itself uses less than 1 GiB."""


class SmiError(Exception):
    """`nvidia-smi` gave no list of GPUs; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; None where the driver has no such figure. Sizes in MiB, temperature in °C."""

    index: str
    uuid: str
    name: str
    memory_used: float | None
    temperature: float | None
    num_uncorrected: float | None
    """ECC errors that could not be corrected, since the driver was loaded."""

    @property
    def label(self) -> str:
        """Its name for messages."""
        return f"GPU {self.index} ({self.name})"


def list_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs that this job may use. Raises SmiError."""
    command = ("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_S, env=environ
        )
    except FileNotFoundError as error:
        raise SmiError("nvidia-smi, and so the driver, is not installed on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise SmiError(f"nvidia-smi did not answer within {ANSWER_S:g} s: a GPU hangs") from error
    except OSError as error:
        raise SmiError(f"nvidia-smi cannot be started: {error.strerror}") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-300:]
        raise SmiError(f"nvidia-smi failed with {done.returncode}: {output}")
    gpus = tuple(_parse(line) for line in done.stdout.splitlines() if line.strip())
    return _visible(gpus, environ)


def gpu_faults(gpus: tuple[Gpu, ...], num_rented: int) -> Iterator[str]:
    """Yield a sentence for each fault."""
    if len(gpus) < num_rented:
        are = either(num_rented, "is", "are")
        yield f"nvidia-smi lists {counted(len(gpus), 'GPU')}, and {num_rented} {are} rented"
    for gpu in gpus:
        if gpu.num_uncorrected:
            yield f"{gpu.label} has {gpu.num_uncorrected:g} uncorrected memory errors"
        if gpu.memory_used is not None and gpu.memory_used > IN_USE_MIB:
            yield f"{gpu.label} has {gpu.memory_used / 1024:.1f} GiB in use by other processes"


def describe_gpus(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """Yield remarks on GPUs without faults."""
    warm = [gpu.temperature for gpu in gpus if gpu.temperature is not None]
    heat = f", {min(warm):g} to {max(warm):g} °C" if warm else ""
    if gpus:
        yield f"{counted(len(gpus), 'GPU')} ({gpus[0].name}){heat}"


def _parse(line: str) -> Gpu:
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(FIELDS.split(",")):
        raise SmiError(f"nvidia-smi answered {line[:120]!r}, which is not a list of GPUs")
    index, uuid, name, *figures = values
    used, temperature, errors = map(_figure, figures)
    return Gpu(
        index=index,
        uuid=uuid,
        name=name,
        memory_used=used,
        temperature=temperature,
        num_uncorrected=errors,
    )


def _figure(text: str) -> float | None:
    """Parse a number; None for `[N/A]` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def _visible(gpus: tuple[Gpu, ...], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Drop the GPUs of a shared machine that belong to other jobs."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return gpus
    ours = {each.strip() for each in visible.split(",")}
    return tuple(gpu for gpu in gpus if gpu.index in ours or gpu.uuid in ours)
