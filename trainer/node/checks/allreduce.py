"""`python -m trainer.node.checks.allreduce --ranks N`: an all-reduce over all GPUs of a machine.

Standard output has the throughput. Exit code 0: every rank got the right sum. 1: it failed, and the
last line of standard error has the reason. 3: torch has no CUDA here. `--backend gloo` does the
same with the CPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.spec.backend.counts import counted

NO_CUDA = 3
JOIN_S = 120.0
NUM_ELEMENTS = 16 * 1024 * 1024
"""float32: 64 MiB, enough to fill the links."""
ROUNDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.node.checks.allreduce")
    parser.add_argument("--ranks", type=int, required=True, help="GPUs to sum over")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.rank is not None:
        _sum_up(args.rank, args.ranks, args.meeting, args.backend)
        return 0
    if args.backend == "nccl" and not _has_cuda():
        return NO_CUDA
    # A port would have to be free still when torch is imported, seconds after its choice.
    with TemporaryDirectory(prefix="hillclimb-allreduce-") as folder:
        return _start_ranks(args.ranks, args.backend, Path(folder) / "meeting")


def _has_cuda() -> bool:
    with gc_paused_import():
        import torch  # noqa: PLC0415 - takes seconds; importers need a constant only

    return torch.cuda.is_available()


def _start_ranks(ranks: int, backend: str, meeting: Path) -> int:
    same = ["--ranks", str(ranks), "--backend", backend, "--meeting", str(meeting)]
    command = [sys.executable, "-m", "trainer.node.checks.allreduce", *same]
    started = [
        subprocess.Popen([*command, "--rank", str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=JOIN_S)[1] for process in started]
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"the ranks did not find each other within {JOIN_S:g} s\n")
        return 1
    finally:
        for process in started:
            process.kill()
            process.wait()
    failed = [rank for rank, process in enumerate(started) if process.returncode]
    if failed:
        why = (errors[failed[0]].strip().splitlines() or ["no error message"])[-1]
        sys.stderr.write(f"rank {failed[0]}: {why}\n")
        return 1
    return 0


def _sum_up(rank: int, ranks: int, meeting: Path, backend: str) -> None:
    with gc_paused_import():
        import torch  # noqa: PLC0415 - as above
        import torch.distributed as dist  # noqa: PLC0415

    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend,
        init_method=meeting.as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=JOIN_S / 2),
    )
    values = torch.empty(NUM_ELEMENTS, device=device)
    seconds = 0.0
    for number in range(ROUNDS):
        values.fill_(rank + 1.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        dist.all_reduce(values)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if number:  # the first one also connects
            seconds += time.perf_counter() - started
    expected = ranks * (ranks + 1) / 2
    low, high = float(values.min()), float(values.max())
    if not low == high == expected:
        raise SystemExit(f"the sum is {low:g} to {high:g} instead of {expected:g}")
    dist.destroy_process_group()
    if rank == 0:
        gb_s = values.nbytes * (ROUNDS - 1) / seconds / 1e9
        print(f"all-reduce of 64 MiB over {counted(ranks, 'rank')} by {backend}: {gb_s:.1f} GB/s")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
