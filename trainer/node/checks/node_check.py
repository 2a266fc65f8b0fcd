"""Checks a machine against the run's requirements: `python -m trainer.node.checks.node_check`.

The first machine runs it on every machine. Each fault is a sentence, and one ends the attempt as
`node_unfit`: the next attempt may get better machines.
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

from hillclimb.spec.backend.counts import counted, either
from trainer.node.checks.allreduce import NO_CUDA
from trainer.node.checks.gpus import SmiError, describe_gpus, gpu_faults, list_gpus

COMPILE_S = 60.0
ALL_REDUCE_S = 240.0
"""Eight processes import torch and connect to each other."""
KERNEL_S = 180.0
"""A process imports torch and Triton, which compiles a kernel."""
GB = 1e9
FAKE_GPUS_VARIABLE = "HILLCLIMB_NODE_STAND_IN_GPUS"
"""Set in tests, where `nvidia-smi` lists GPUs that do not exist: torch need not detect them."""
CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
PROGRAM = "int main(void) { return 42; }\n"


class NodeRequirements(BaseModel):
    """A run's requirements on each machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_gpus: Annotated[int, Field(ge=0)]
    disk_gb: float
    """Free space in the run directory's file system."""
    memory_gb: float
    """Total memory."""
    folder: Path


class NodeReport(BaseModel):
    """Result of checking one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ip: str
    hostname: str
    unfit: tuple[str, ...]
    """A sentence for each fault; empty: the machine is fit."""
    remarks: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check this machine and write a JSON list of one report."""
    parser = argparse.ArgumentParser(prog="python -m trainer.node.checks.node_check")
    parser.add_argument("--requirements", required=True, help="requirements on the machine (JSON)")
    parser.add_argument("--ip", required=True, help="the machine's address, for the report")
    parser.add_argument("--out", type=Path, required=True, help="file for the report")
    args = parser.parse_args(arguments)
    report = check_node(NodeRequirements.model_validate_json(args.requirements), args.ip)
    args.out.write_text(f"[{report.model_dump_json()}]")
    return 0


def check_node(requirements: NodeRequirements, ip: str) -> NodeReport:
    """Check this machine; takes up to minutes with GPUs."""
    unfit, remarks = list(_machine(requirements)), []
    if requirements.num_gpus:
        faults, gpu_remarks = _gpus(requirements.num_gpus)
        unfit += faults
        remarks += gpu_remarks
    return NodeReport(ip=ip, hostname=platform.node(), unfit=tuple(unfit), remarks=tuple(remarks))


def _machine(requirements: NodeRequirements) -> Iterator[str]:
    free = shutil.disk_usage(_existing(requirements.folder)).free / GB
    if free < requirements.disk_gb:
        yield f"{requirements.folder} has {free:.1f} GB free and needs {requirements.disk_gb:g}"
    memory = memory_bytes() / GB
    if memory < requirements.memory_gb:
        yield f"the machine has {memory:.1f} GB of memory and needs {requirements.memory_gb:g}"
    if problem := compiler_problem():
        yield problem


def memory_bytes() -> int:
    """Return the memory of the machine, or of our container."""
    limits = [psutil.virtual_memory().total]
    for file in CGROUPS:
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # not there, or `max`
            continue
    return min(limits)


def compiler_problem() -> str | None:
    """Return why no C compiler works, which Triton's kernels need; None where one does."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        return "there is no C compiler (cc, gcc or clang), which kernels are compiled with"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "try.c"), Path(folder, "try")
        source.write_text(PROGRAM)
        try:
            command = (*compiler.split(), str(source), "-o", str(program))
            build = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=COMPILE_S
            )
            if build.returncode:
                return f"the C compiler {compiler} fails: {build.stderr.strip()[-300:]}"
            code = subprocess.run((program,), check=False, timeout=COMPILE_S).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the C compiler {compiler} does not work: {error}"
    return (
        None if code == 42 else f"a program built with the C compiler {compiler} exits with {code}"
    )


def _gpus(num_rented: int) -> tuple[list[str], list[str]]:
    """Return faults of the GPUs, and remarks."""
    environ = dict(os.environ)
    try:
        gpus = list_gpus(environ)
    except SmiError as error:
        are = either(num_rented, "is", "are")
        return [f"{counted(num_rented, 'GPU')} {are} rented: {error}"], []
    unfit, remarks = list(gpu_faults(gpus, num_rented)), list(describe_gpus(gpus))
    if not unfit:
        problem, remark = _all_reduce(num_rented)
        problem = problem or kernel_problem()
        unfit += [problem] if problem else []
        remarks += [remark] if remark else []
    return unfit, remarks


def _all_reduce(ranks: int) -> tuple[str | None, str | None]:
    """Return the fault of an all-reduce over the GPUs, or a remark with its throughput."""
    if find_spec("torch") is None:
        return "there is no torch in this environment", None
    command = (sys.executable, "-m", "trainer.node.checks.allreduce", "--ranks", str(ranks))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ALL_REDUCE_S
        )
    except subprocess.TimeoutExpired:
        return (
            f"an all-reduce over {counted(ranks, 'GPU')} did not end within {ALL_REDUCE_S:g} s",
            None,
        )
    if done.returncode == NO_CUDA:
        if FAKE_GPUS_VARIABLE in os.environ:
            return (
                None,
                f"torch detects no GPU, and {FAKE_GPUS_VARIABLE} is set: no all-reduce was tried",
            )
        return (
            f"torch detects none of the {ranks} rented GPUs: its build has no CUDA, or one that the"
            " machine's driver is too old for",
            None,
        )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        return f"an all-reduce over {counted(ranks, 'GPU')} failed: {reason[-300:]}", None
    return None, done.stdout.strip()


def kernel_problem() -> str | None:
    """Return why no Triton kernel runs on the first GPU; None where one does, or torch sees none.

    The all-reduce says that torch sees none.
    """
    command = (sys.executable, "-m", "trainer.node.checks.kernel")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=KERNEL_S
        )
    except subprocess.TimeoutExpired:
        return f"a Triton kernel was not compiled within {KERNEL_S:g} s"
    if done.returncode in (0, NO_CUDA):
        return None
    reason = (done.stderr.strip().splitlines() or ["no error message"])[-1]
    return (
        f"no Triton kernel runs on the GPU: {reason[-300:]} (it needs Triton, a C compiler and"
        " Python's headers)"
    )


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    return next(each for each in (folder, *folder.parents) if each.exists())


if __name__ == "__main__":
    sys.exit(main())
