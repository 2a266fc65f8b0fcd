"""`python -m trainer.node.fitness`: before a machine trains, it has to have what was rented.

The acceptance test, run by the first machine on every machine. Each finding is a sentence; with one
the attempt ends as `node_unfit`, and the next one may get better machines.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field

from trainer.node.allreduce import NO_CUDA
from trainer.node.gpus import SmiError, list_gpus, told_gpus, unfit_gpus

COMPILE_S = 60.0
ALL_REDUCE_S = 240.0
"""Eight processes import torch and find each other."""
GB = 1e9
STAND_INS = "HILLCLIMB_NODE_STAND_IN_GPUS"
"""Set where `nvidia-smi` tells of GPUs that are not there, so that torch need not see them."""
CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
PROGRAM = "int main(void) { return 42; }\n"


class Demands(BaseModel):
    """What a machine needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_gpus: Annotated[int, Field(ge=0)]
    disk_gb: float
    """Free, where the run directory is."""
    memory_gb: float
    """In all."""
    folder: Path


class Inspection(BaseModel):
    """What was found on a machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ip: str
    hostname: str
    unfit: tuple[str, ...]
    """A sentence for everything that is wrong; none: it is fit."""
    remarks: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at this machine alone and write a JSON list of one."""
    parser = argparse.ArgumentParser(prog="python -m trainer.node.fitness")
    parser.add_argument("--demands", required=True, help="what the machine needs (JSON)")
    parser.add_argument("--ip", required=True, help="the machine's address, for the report")
    parser.add_argument("--out", type=Path, required=True, help="file for what was found")
    given = parser.parse_args(arguments)
    found = inspect(Demands.model_validate_json(given.demands), given.ip)
    given.out.write_text(f"[{found.model_dump_json()}]")
    return 0


def inspect(demands: Demands, ip: str) -> Inspection:
    """Look at this machine; takes up to minutes where it has GPUs."""
    unfit, remarks = list(_machine(demands)), []
    if demands.num_gpus:
        wrong, told = _gpus(demands.num_gpus)
        unfit += wrong
        remarks += told
    return Inspection(ip=ip, hostname=platform.node(), unfit=tuple(unfit), remarks=tuple(remarks))


def _machine(demands: Demands) -> Iterator[str]:
    free = shutil.disk_usage(_existing(demands.folder)).free / GB
    if free < demands.disk_gb:
        yield f"{demands.folder} has {free:.1f} GB free, and {demands.disk_gb:g} are needed"
    memory = memory_bytes() / GB
    if memory < demands.memory_gb:
        yield f"the machine has {memory:.1f} GB of memory, and {demands.memory_gb:g} are needed"
    if problem := compiler_problem():
        yield problem


def memory_bytes() -> int:
    """Return the memory of the machine, or of the container we are in."""
    limits = [psutil.virtual_memory().total]
    for file in CGROUPS:
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # not there, or `max`
            continue
    return min(limits)


def compiler_problem() -> str | None:
    """Say why there is no working C compiler, which Triton's kernels need; None when there is."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        return "there is no C compiler (cc, gcc or clang), which kernels are compiled with"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "try.c"), Path(folder, "try")
        source.write_text(PROGRAM)
        try:
            command = (*compiler.split(), str(source), "-o", str(program))
            made = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=COMPILE_S
            )
            if made.returncode:
                return f"the C compiler {compiler} fails: {made.stderr.strip()[-300:]}"
            code = subprocess.run((program,), check=False, timeout=COMPILE_S).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the C compiler {compiler} does not work: {error}"
    return None if code == 42 else f"what the C compiler {compiler} makes ends with {code}"


def _gpus(wanted: int) -> tuple[list[str], list[str]]:
    """What is wrong with the GPUs, and what else is worth knowing."""
    environ = dict(os.environ)
    try:
        gpus = list_gpus(environ)
    except SmiError as error:
        return [f"{wanted} GPUs are rented: {error}"], []
    unfit, remarks = list(unfit_gpus(gpus, wanted)), list(told_gpus(gpus))
    if not unfit:
        problem, remark = _all_reduce(wanted)
        unfit += [problem] if problem else []
        remarks += [remark] if remark else []
    return unfit, remarks


def _all_reduce(ranks: int) -> tuple[str | None, str | None]:
    """What is wrong with an all-reduce over the GPUs, or how fast it was."""
    if find_spec("torch") is None:
        return "there is no torch in this environment", None
    command = (sys.executable, "-m", "trainer.node.allreduce", "--ranks", str(ranks))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ALL_REDUCE_S
        )
    except subprocess.TimeoutExpired:
        return f"an all-reduce over {ranks} GPUs did not end within {ALL_REDUCE_S:g} s", None
    if done.returncode == NO_CUDA:
        if STAND_INS in os.environ:
            return None, f"torch sees no GPU, as {STAND_INS} has it: no all-reduce was tried"
        return (
            f"torch sees none of the {ranks} rented GPUs: its build has no CUDA, or one that the"
            " machine's driver is too old for",
            None,
        )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return f"an all-reduce over {ranks} GPUs failed: {said[-300:]}", None
    return None, done.stdout.strip()


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(each for each in (folder, *folder.parents) if each.exists())


if __name__ == "__main__":
    sys.exit(main())
