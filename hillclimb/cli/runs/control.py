"""`cancel`, `pause`, `resume`, `pull`: act on a run."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import BinaryIO

import click

from hillclimb.cli.console import out, print_json
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.watch import follow_run
from hillclimb.client import Client, Json
from hillclimb.errors import ApiUnreachable, HillclimbError

POLICY, ADAPTER = "policy/", "adapter/"
"""Where a checkpoint has its weights: all of them, or what a Tinker server trained."""
"""Where a checkpoint keeps its Hugging Face directory."""


PULL_TRIES = 5
"""Connections per file that may break before a pull gives up; each goes on where the last ended."""
PULL_PAUSE_S = 1.0
BLOCK_BYTES = 1 << 20
PAUSE_POLL_S = 0.5


class DownloadFailed(HillclimbError):
    """A file of a checkpoint did not arrive whole."""


@main.command()
@click.argument("run_id", metavar="RUN")
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
        out.print(f"{run['id']} {run['status']}")


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("--watch", "wait", is_flag=True, help="Wait until the run rests.")
@command
def pause(*, run_id: str, wait: bool, as_json: bool) -> None:
    """Let RUN rest and free what it holds; its trainer saves a checkpoint first."""
    with connect() as client:
        run = client.pause(run_id)
        while wait and run["status"] == "pausing":
            time.sleep(PAUSE_POLL_S)
            run = client.run(run_id)
    if as_json:
        print_json(run)
    else:
        out.print(f"{run['id']} {run['status']}")


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("--watch", "wait", is_flag=True, help="Follow the run to its end.")
@command
def resume(*, run_id: str, wait: bool, as_json: bool) -> None:
    """Go on from RUN's newest checkpoint: a new run if it has ended, the same if it is paused."""
    with connect() as client:
        run = client.resume(run_id)
        if wait:
            sys.exit(follow_run(client, run["id"], as_json=as_json))
    if as_json:
        print_json(run)
    else:
        out.print(f"{run['id']} {run['status']}")


@main.command()
@click.argument("source", metavar="RUN[@STEP]")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@command
def pull(*, source: str, directory: Path, as_json: bool) -> None:
    """Bring a checkpoint's weights into DIR.

    They are a Hugging Face model directory, or an adapter in peft's form where a Tinker server
    trained it.
    """
    run_id, _, step = source.partition("@")
    with connect() as client:
        checkpoint = _checkpoint(client, run_id, step)
        files = [
            _pull_file(client, run_id, checkpoint, entry, directory)
            for entry in _weights(checkpoint)
        ]
    if as_json:
        print_json({"run_id": run_id, "step": checkpoint["step"], "files": files})
    else:
        out.print(f"step {checkpoint['step']} of {run_id}: {len(files)} files in {directory}")


def _checkpoint(client: Client, run_id: str, step: str) -> Json:
    if step:
        if not step.isdigit():
            raise click.BadParameter(f"the step after @ is a number, not {step!r}")
        return client.checkpoint(run_id, int(step))
    saved = client.checkpoints(run_id)["data"]
    if not saved:
        raise DownloadFailed(f"{run_id} has no checkpoint yet")
    return client.checkpoint(run_id, max(entry["step"] for entry in saved))


def _weights(checkpoint: Json) -> list[Json]:
    """The files a model loads from; optimizer and data order stay behind."""
    files: list[Json] = checkpoint["manifest"]["files"]
    for folder in (POLICY, ADAPTER):
        if weights := [entry for entry in files if entry["path"].startswith(folder)]:
            return weights
    raise DownloadFailed(f"the checkpoint of step {checkpoint['step']} holds no {POLICY}")


def _pull_file(client: Client, run_id: str, checkpoint: Json, entry: Json, directory: Path) -> str:
    """Bring one file here; what an earlier pull has left of it is gone on from."""
    target = directory / Path(*Path(entry["path"]).parts[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("a+b") as file:
        digest = _digest(file, entry["size_bytes"])
        for left in reversed(range(PULL_TRIES)):
            try:
                for block in client.checkpoint_file(
                    run_id, checkpoint["step"], entry["path"], start=file.tell()
                ):
                    digest.update(block)
                    file.write(block)
                break
            except ApiUnreachable:
                if not left:
                    raise
            time.sleep(PULL_PAUSE_S)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != entry["sha256"]:
        partial.unlink()
        raise DownloadFailed(f"{entry['path']} arrived damaged: its checksum differs; pull again")
    partial.replace(target)
    return str(target)


def _digest(file: BinaryIO, size: int) -> hashlib._Hash:
    """The digest of what a file holds; one that cannot be a beginning of it is emptied."""
    digest = hashlib.sha256()
    if file.tell() >= size:
        file.truncate(0)
    file.seek(0)
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    return digest
