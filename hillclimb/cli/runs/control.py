"""`cancel`, `pause`, `resume`, `delete`, `pull`: act on a run."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.console import out, print_json, print_text
from hillclimb.cli.terminal.folder import Folder
from hillclimb.cli.terminal.run_reference import RUN_AT_STEP, RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import DownloadFailed, NoCheckpoint
from hillclimb.client.stream.download import download
from hillclimb.protocol.checkpoint_manifest import ManifestFile, listed_files
from hillclimb.protocol.payloads.checkpoints import CheckpointWithManifest
from hillclimb.protocol.payloads.statuses import RunStatus
from hillclimb.protocol.rundir import ADAPTER, POLICY

PAUSE_POLL_S = 0.5


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--watch", "wait", is_flag=True, help="Wait until the run has ended.")
@command
def cancel(*, run_id: str, wait: bool, as_json: bool) -> None:
    """Cancel RUN; its trainer saves a checkpoint first."""
    with connect() as client:
        run = client.cancel(run_id)
        if wait:
            follow_run(client, run_id, as_json=as_json)
            return
    if as_json:
        print_json(run)
    else:
        out.print(f"{run.id} {run.status}")


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--watch", "wait", is_flag=True, help="Wait until the run is paused.")
@command
def pause(*, run_id: str, wait: bool, as_json: bool) -> None:
    """Pause RUN and release its machine; its trainer saves a checkpoint first."""
    with connect() as client:
        run = client.pause(run_id)
        while wait and run.status is RunStatus.PAUSING:
            time.sleep(PAUSE_POLL_S)
            run = client.run(run_id)
    if as_json:
        print_json(run)
    else:
        out.print(f"{run.id} {run.status}")


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--watch", "wait", is_flag=True, help="Follow the run to its end.")
@command
def resume(*, run_id: str, wait: bool, as_json: bool) -> None:
    """Resume RUN from its newest checkpoint: the same run if paused, a new one if it has ended."""
    with connect() as client:
        run = client.resume(run_id)
        if wait:
            sys.exit(follow_run(client, run.id, as_json=as_json))
    if as_json:
        print_json(run)
    else:
        out.print(f"{run.id} {run.status}")


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@command
def delete(*, run_id: str, yes: bool, as_json: bool) -> None:
    """Delete RUN, which has ended, with its checkpoints, rollouts, logs and figures, for good.

    An admin may, and whoever submitted it. Refused while another run, an experiment or an issue
    needs it.
    """
    with connect() as client:
        if not yes:
            run = client.run(run_id)
            question = f"Delete {run.name} ({run.id}) with all its checkpoints and figures?"
            click.confirm(question, abort=True, err=True)
        deleted = client.delete(run_id)
    if as_json:
        print_json(deleted)
    else:
        print_text(f"{deleted.id} ({deleted.name}) is deleted; its files go in the background")


@main.command()
@click.argument("source", metavar="RUN[@STEP]", type=RUN_AT_STEP)
@click.argument("directory", metavar="DIR", type=Folder())
@click.option("--force", is_flag=True, help="Overwrite files of another checkpoint in DIR.")
@command
def pull(*, source: str, directory: Path, force: bool, as_json: bool) -> None:
    """Download a checkpoint's weights to DIR, of the newest one without @STEP.

    They form a Hugging Face model directory, or an adapter in peft's format if a Tinker server
    trained it.
    """
    run_id, _, step = source.partition("@")
    with connect() as client:
        checkpoint = _checkpoint(client, run_id, step)
        files = [
            _pull_file(client, checkpoint, entry, directory, overwrite=force)
            for entry in _weights(checkpoint)
        ]
    if as_json:
        print_json({"run_id": run_id, "step": checkpoint.step, "files": files})
    else:
        print_text(f"step {checkpoint.step} of {run_id}: {len(files)} files in {directory}")


def _checkpoint(client: Client, run_id: str, step: str) -> CheckpointWithManifest:
    if step:
        if not step.isdigit():
            raise click.BadParameter(f"the step after @ is a number, not {step!r}")
        return client.checkpoint(run_id, int(step))
    saved = client.checkpoints(run_id).data
    if not saved:
        raise NoCheckpoint(f"{run_id} has no checkpoint yet")
    usable = [entry for entry in saved if entry.qualification != "refused"] or saved
    return client.checkpoint(run_id, max(entry.step for entry in usable))


def _weights(checkpoint: CheckpointWithManifest) -> list[ManifestFile]:
    """Return the files of the model, without optimizer state and data order."""
    try:
        files = listed_files(checkpoint.manifest)
    except ValueError as error:
        raise DownloadFailed(f"the checkpoint cannot be downloaded: {error}") from error
    for folder in (POLICY, ADAPTER):
        if weights := [entry for entry in files if entry.path.startswith(f"{folder}/")]:
            return weights
    raise DownloadFailed(f"the checkpoint of step {checkpoint.step} holds no {POLICY}/")


def _pull_file(
    client: Client,
    checkpoint: CheckpointWithManifest,
    entry: ManifestFile,
    directory: Path,
    *,
    overwrite: bool,
) -> str:
    """Download one file, resuming the partial download of an earlier pull."""
    target = directory / Path(*Path(entry.path).parts[1:])
    fetch = partial(client.checkpoint_file, checkpoint.run_id, checkpoint.step, entry.path)
    download(
        lambda start: fetch(start=start),
        target,
        size=entry.size_bytes,
        sha256=entry.sha256,
        overwrite=overwrite,
    )
    return str(target)
