"""The GPUs of one machine, as `nvidia-smi` shows them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FIELDS = "index,uuid,name,memory.used,temperature.gpu,ecc.errors.uncorrected.volatile.total"
ANSWER_S = 30.0
"""`nvidia-smi` takes seconds on eight GPUs; on one that hangs it never answers."""
IN_USE_MIB = 2048.0
"""What a driver keeps for itself is below 1 GiB."""


class SmiError(Exception):
    """There is no answer about GPUs; the message is a sentence."""


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
    def told(self) -> str:
        """Its name among the machine's."""
        return f"GPU {self.index} ({self.name})"


def list_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs that are ours here. Raises SmiError."""
    command = ("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_S, env=environ
        )
    except FileNotFoundError as error:
        raise SmiError("there is no nvidia-smi, and so no driver, on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise SmiError(f"nvidia-smi did not answer within {ANSWER_S:g} s: a GPU hangs") from error
    except OSError as error:
        raise SmiError(f"nvidia-smi cannot be started: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise SmiError(f"nvidia-smi failed with {done.returncode}: {said}")
    found = tuple(_parse(line) for line in done.stdout.splitlines() if line.strip())
    return _visible(found, environ)


def unfit_gpus(gpus: tuple[Gpu, ...], wanted: int) -> Iterator[str]:
    """Yield what is wrong, a sentence each."""
    if len(gpus) < wanted:
        yield f"nvidia-smi shows {len(gpus)} GPUs, and {wanted} are rented"
    for gpu in gpus:
        if gpu.num_uncorrected:
            yield f"{gpu.told} has {gpu.num_uncorrected:g} memory errors that were not corrected"
        if gpu.memory_used is not None and gpu.memory_used > IN_USE_MIB:
            yield f"{gpu.told} has {gpu.memory_used / 1024:.1f} GiB in use by something else"


def told_gpus(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """Yield what is worth knowing of GPUs that are fit."""
    warm = [gpu.temperature for gpu in gpus if gpu.temperature is not None]
    heat = f", {min(warm):g} to {max(warm):g} °C" if warm else ""
    if gpus:
        yield f"{len(gpus)} GPUs ({gpus[0].name}){heat}"


def _parse(line: str) -> Gpu:
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(FIELDS.split(",")):
        raise SmiError(f"nvidia-smi answered {line[:120]!r}, which is no list of GPUs")
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
    """A number; None for `[N/A]` and its like."""
    try:
        return float(text)
    except ValueError:
        return None


def _visible(gpus: tuple[Gpu, ...], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Leave out those of a shared machine that were given to somebody else."""
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    if not shown:
        return gpus
    ours = {each.strip() for each in shown.split(",")}
    return tuple(gpu for gpu in gpus if gpu.index in ours or gpu.uuid in ours)
