"""`python -m worker.runner`: exit code 0 after a stop, 2 when it is misconfigured."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hillclimb.process import tracing
from hillclimb.process.launcher import Launcher
from hillclimb.process.redactor import Redactor, with_secrets
from hillclimb.process.sweep import Sweeper
from hillclimb.process.tail_upload import TailUploader
from worker.runner.client import ServiceClient
from worker.runner.errors import RunnerMisconfigured, RunnerRunning, TokenRefused
from worker.runner.identity import own_identity
from worker.runner.journal import RunnerJournal
from worker.runner.late_sweeps import EndedAttempt, LateSweeps
from worker.runner.runner import Runner
from worker.runner.secrets import AttemptSecrets
from worker.runner.settings import RunnerSettings
from worker.runner.trainer_table import TrainerTable


def main() -> int:
    """Run until a signal; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = RunnerSettings.from_environment(os.environ)
        with only_one(settings.own_dir):
            runner = make_runner(settings)
            stop_on_signals(runner)
            tracing.start_tracing("hillclimb-runner")
            runner.run()
    except (RunnerMisconfigured, RunnerRunning, TokenRefused) as error:
        sys.stderr.write(f"runner: {error}\n")
        return 2
    finally:
        tracing.stop_tracing()
    return 0


def make_runner(settings: RunnerSettings) -> Runner:
    """Create a runner with its dependencies."""
    launcher = Launcher(settings.host, dict(os.environ), secret_hosts=settings.secret_hosts)
    secrets = AttemptSecrets(settings.own_dir / "secrets")
    sweeper = Sweeper(settings.host, dict(os.environ))

    def sweep(ended: EndedAttempt) -> bool:
        variables = with_secrets(sweeper.environment, secrets.get(ended.attempt_id))
        attempt_dir = launcher.directory(ended.run_id, ended.attempt)
        return replace(sweeper, environment=variables).sweep(attempt_dir)

    return Runner(
        settings=settings,
        client=ServiceClient(
            settings.api_url, settings.token, identity=own_identity(settings.own_dir)
        ),
        table=TrainerTable(launcher, RunnerJournal(settings.own_dir / "attempts"), secrets),
        uploader=TailUploader.at(settings.blobs_url, Redactor.of(os.environ)),
        sweeper=sweeper,
        late_sweeps=LateSweeps(settings.own_dir / "sweeps", sweep, secrets.remove),
    )


def stop_on_signals(runner: Runner) -> None:
    """Stop gracefully on SIGTERM and SIGINT."""

    def stop(_number: int, _frame: object) -> None:
        runner.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Lock the state directory for this process's life. Raises RunnerRunning."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunnerRunning(f"another runner is using {folder}") from error
        yield


if __name__ == "__main__":
    sys.exit(main())
