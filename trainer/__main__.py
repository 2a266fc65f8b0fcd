"""`python -m trainer run --spec FILE --run-dir DIR --attempt N [--resume-from KEY|latest]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hillclimb.process.lazy_imports import gc_paused_import

with gc_paused_import():
    from hillclimb.blobs.base import StoreError
    from trainer.jobs.process import EXIT_FAILED, EXIT_HUNG, ProcessOptions, run_attempt

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code (see `run_attempt`; 2 for wrong usage)."""
    args = _parser().parse_args(arguments)
    options = ProcessOptions(
        spec=args.spec,
        run_dir=args.run_dir,
        attempt=args.attempt,
        resume_from=args.resume_from,
        environ=os.environ,
    )
    if args.threads:
        with gc_paused_import():
            import torch  # noqa: PLC0415 - see hillclimb.process.lazy_imports
        torch.set_num_threads(args.threads)
    try:
        options.dir.path.mkdir(parents=True, exist_ok=True)
        _start_logging(options.dir.log)
        return _run(options)
    except (StoreError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED


def _run(options: ProcessOptions) -> int:
    with asyncio.Runner() as runner:
        code = runner.run(run_attempt(options))
        if code == EXIT_HUNG:
            # Closing the event loop would wait for the thread that hangs.
            logging.shutdown()
            os._exit(code)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer", description="Train one run.")
    run = parser.add_subparsers(required=True, metavar="command").add_parser(
        "run", help="train one attempt of a run, with or without a service"
    )
    run.add_argument("--spec", type=Path, required=True, help="file of the run spec (JSON)")
    run.add_argument(
        "--run-dir", type=Path, required=True, help="directory of the run; its name is the run id"
    )
    run.add_argument("--attempt", type=_positive, default=1, help="number of this attempt, from 1")
    run.add_argument(
        "--resume-from",
        metavar="KEY",
        default=os.environ.get("HILLCLIMB_RESUME_FROM") or None,
        help="blob key of the checkpoint to resume from, or `latest` for this run's newest",
    )
    threads = "torch threads (default: OMP_NUM_THREADS; a deterministic run has one)"
    run.add_argument("--threads", type=int, help=threads)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("attempts count from 1")
    return number


def _start_logging(log: Path) -> None:
    """Log to standard error, and to the log file unless standard error is that file."""
    # On a full disk, logging must not write a traceback per line.
    logging.raiseExceptions = False
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    stderr = os.fstat(sys.stderr.fileno())
    if not (log.exists() and os.path.samestat(stderr, log.stat())):
        handlers.append(logging.FileHandler(log))
    logging.basicConfig(level=logging.INFO, format=_FORMAT, handlers=handlers)
    for name in ("httpx", "httpx2", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
