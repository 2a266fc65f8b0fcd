"""`python -m trainer run --spec FILE --run-dir DIR --attempt N [--resume-from KEY|latest]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.loading import importing
from trainer.process import EXIT_FAILED, EXIT_HUNG, Launch, run_attempt
from trainer.stores.base import StoreError

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code (see `run_attempt`; 2 for wrong usage)."""
    given = _parser().parse_args(arguments)
    launch = Launch(
        spec=given.spec,
        run_dir=given.run_dir,
        attempt=given.attempt,
        resume_from=given.resume_from,
        environ=os.environ,
    )
    if given.threads:
        with importing():
            import torch  # noqa: PLC0415 - see trainer.loading
        torch.set_num_threads(given.threads)
    try:
        launch.dir.path.mkdir(parents=True, exist_ok=True)
        _start_logging(launch.dir.log)
        return _run(launch)
    except (StoreError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED


def _run(launch: Launch) -> int:
    with asyncio.Runner() as runner:
        code = runner.run(run_attempt(launch))
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
    run.add_argument("--spec", type=Path, required=True, help="the run spec (JSON)")
    run.add_argument(
        "--run-dir", type=Path, required=True, help="directory of the run; its name is the run id"
    )
    run.add_argument("--attempt", type=_from_one, default=1, help="number of this attempt")
    run.add_argument(
        "--resume-from",
        metavar="KEY",
        default=os.environ.get("HILLCLIMB_RESUME_FROM") or None,
        help="blob key of the checkpoint to go on from, or `latest` for this run's newest",
    )
    threads = "torch threads (default: OMP_NUM_THREADS; a deterministic run has one)"
    run.add_argument("--threads", type=int, help=threads)
    return parser


def _from_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("attempts count from 1")
    return number


def _start_logging(log: Path) -> None:
    """Log to standard error, and to the log file unless that is where standard error goes."""
    # A log that cannot be written, as on a full disk, is not worth a traceback per line.
    logging.raiseExceptions = False
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    mine = os.fstat(sys.stderr.fileno())
    if not (log.exists() and os.path.samestat(mine, log.stat())):
        handlers.append(logging.FileHandler(log))
    logging.basicConfig(level=logging.INFO, format=_FORMAT, handlers=handlers)
    for name in ("httpx", "httpx2", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
