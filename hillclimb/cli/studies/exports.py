"""`export`: results in the layouts that a team knows, in a directory or a bucket of its own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from hillclimb.blobs.archive.zip_file import ArchiveRefused, open_zip
from hillclimb.blobs.base import BlobStore, StoreError
from hillclimb.blobs.locate import open_store
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.studies.imports import NOT_IN_NAMES
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.cli.terminal.env_reference import ENV_REFERENCE
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import DownloadFailed, ImportSourceError
from hillclimb.client.stream.download import download
from hillclimb.protocol.checkpoint_manifest import listed_files
from hillclimb.protocol.payloads.runs import RunPayload
from hillclimb.protocol.rundir import MANIFEST
from hillclimb.stats.trajectories.skyrl.layout import EVALS, place_of

MAX_BYTES = 64 << 30
"""Largest export, unpacked (bytes)."""
ID_CHARS = 8
TRACKED = re.compile(r"attempt-\d+/(wandb|tensorboard)(/[\w-][\w.-]*){2}")
RUN = click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
TARGET = click.argument("target", metavar="DIR|S3_ADDRESS")
DECODING = click.option("--decoding", metavar="NAME", help="Default: the first of the run.")


@main.group()
def export() -> None:
    """Write results in the layouts that a team knows, to a directory or a bucket of its own.

    An S3 address is written with the credentials of your environment.
    """


@export.command("skyrl")
@RUN
@TARGET
@DECODING
@click.option("--step", type=click.IntRange(min=0), help="Only this step; default: all.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@command
def skyrl(
    *,
    run_id: str,
    target: str,
    decoding: str | None,
    step: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the evaluations of RUN as evals/NAME/global_step_N/ENV.jsonl, as SkyRL dumps them.

    aggregated_results.jsonl has eval/ENV/pass_at_n for each step. Rollouts without a grade have no
    row.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-export-") as folder, connect() as client:
        file = Path(folder, "export.zip")
        num_left_out = _left_out(client, run_id, step=step, decoding=decoding)
        _save(client.skyrl_dump(run_id, step=step, decoding=decoding), file)
        try:
            keys = _unpack(
                file, Path(folder, "member"), _open(target), force=force, is_part=_is_place
            )
        except (StoreError, OSError) as error:
            raise ImportSourceError(f"{target} cannot be written: {error}") from error
        except ArchiveRefused as error:
            raise DownloadFailed(f"the export is not whole: {error}") from error
    if as_json:
        names = {"run_id": run_id, "target": target, "files": keys}
        print_json(names | {"num_left_out": num_left_out})
        return
    print_text(f"{len(keys)} files in {target}, from {keys[0]} on")
    if num_left_out:
        print_text(f"{num_left_out} rollouts without a grade have no row", style="yellow")


@export.command("tracking")
@RUN
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--force", is_flag=True, help="Replace files that are there.")
@command
def tracking(*, run_id: str, target: Path, force: bool, as_json: bool) -> None:
    """Write the files of RUN's trackers: W&B's offline files and TensorBoard's event files.

    They are kept for every attempt, also of machines that are gone. `wandb sync` sends W&B's.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-export-") as folder, connect() as client:
        file = Path(folder, "export.zip")
        _save(client.tracking_files(run_id), file)
        try:
            keys = _unpack(
                file, Path(folder, "member"), _open(str(target)), force=force, is_part=_is_tracked
            )
        except (StoreError, OSError) as error:
            raise ImportSourceError(f"{target} cannot be written: {error}") from error
        except ArchiveRefused as error:
            raise DownloadFailed(f"the export is not whole: {error}") from error
    if as_json:
        print_json({"run_id": run_id, "target": str(target), "files": keys})
        return
    print_text(f"{len(keys)} files in {target}")
    for key in keys:
        if key.endswith(".wandb"):
            print_text(f"wandb sync {target / key}")
    if any("/tensorboard/" in key for key in keys):
        print_text(f"tensorboard --logdir {target}")


@export.command("rollouts")
@RUN
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--env", type=ENV_REFERENCE, help="Only this environment.")
@click.option("--step", type=click.IntRange(min=0), help="Only this step.")
@click.option("--split", type=click.Choice(["train", "eval"]), help="Only this split.")
@click.option("--decoding", metavar="NAME", help="train, or the name of an eval decoding.")
@command
def rollouts(*, run_id: str, file: Path, as_json: bool, **filters: Any) -> None:
    """Download rollouts of RUN in bulk to FILE: JSON lines, compressed by gzip.

    Each line has `outcome`, and `trajectory` as it was stored, with its turns and tokens.
    """
    partial_file = file.with_name(f".{file.name}.partial")
    with connect() as client:
        try:
            _save(client.rollouts(run_id, **filters), partial_file)
            partial_file.replace(file)
        finally:
            partial_file.unlink(missing_ok=True)
    size = file.stat().st_size
    if as_json:
        print_json({"run_id": run_id, "file": str(file), "size_bytes": size})
    else:
        print_text(f"{file}: {size:,} bytes")


@export.command("checkpoints")
@RUN
@TARGET
@click.option("--step", "steps", type=click.IntRange(min=0), multiple=True, help="Only these.")
@click.option("--project", metavar="NAME", help="Default: the run's tracking.wandb.project.")
@click.option("--model", metavar="NAME", help="Default: the name in the run's model.source.")
@command
def checkpoints(
    *,
    run_id: str,
    target: str,
    steps: tuple[int, ...],
    project: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Write checkpoints of RUN as PROJECT/MODEL/NAME/global_step_N/, each manifest last.

    Every file is compared with its digest. A step whose manifest is there already is left as it is.
    """
    with connect() as client:
        run = client.run(run_id)
        place = "/".join((_part(project or _project(run)), _part(model or _model(run)), _name(run)))
        saved = sorted({each.step for each in client.checkpoints(run_id).data})
        missing = sorted(set(steps) - set(saved))
        if missing or not saved:
            raise DownloadFailed(
                f"{run_id} has no checkpoint{f' at step {missing[0]}' if missing else ''}"
            )
        chosen = sorted(set(steps)) or saved
        store = _open(target)
        try:
            written = [step for step in chosen if _copy(client, run_id, step, store, place)]
        except (StoreError, OSError) as error:
            raise ImportSourceError(f"{target} cannot be written: {error}") from error
    if as_json:
        print_json({"run_id": run_id, "place": place, "written": written, "steps": chosen})
    else:
        print_text(f"{place}: {len(written)} of {len(chosen)} steps written, the others were there")


def _left_out(client: Client, run_id: str, *, step: int | None, decoding: str | None) -> int:
    """Return the number of rollouts without a grade in the evaluations of an export."""
    origin = client.run(run_id).origin
    if origin is not None and origin.kind == "skyrl":
        return 0
    evals = [each for each in client.evals(run_id).data if step in (None, each.step)]
    name = decoding or (evals[0].decoding if evals else None)
    chosen = [each.all for each in evals if each.decoding == name]
    return sum(rate.num_rollouts - rate.n for rate in chosen)


def _copy(client: Client, run_id: str, step: int, store: BlobStore, place: str) -> bool:
    """Copy a checkpoint, one file after the other; False if its manifest is there already."""
    folder = f"{place}/global_step_{step}"
    if store.exists(f"{folder}/{MANIFEST}"):
        return False
    try:
        entries = listed_files(client.checkpoint(run_id, step).manifest)
    except ValueError as error:
        raise DownloadFailed(f"the checkpoint cannot be downloaded: {error}") from error
    for entry in entries:
        with tempfile.TemporaryDirectory(prefix="hillclimb-export-") as directory:
            local = Path(directory, "file")
            fetch = _fetch(client, run_id, step, entry.path)
            download(fetch, local, size=entry.size_bytes, sha256=entry.sha256, overwrite=True)
            store.put_file(f"{folder}/{entry.path}", local)
    store.put(f"{folder}/{MANIFEST}", _manifest(client, run_id, step))
    return True


def _fetch(client: Client, run_id: str, step: int, path: str) -> Callable[[int], Iterator[bytes]]:
    def fetch(start: int) -> Iterator[bytes]:
        return client.checkpoint_file(run_id, step, path, start=start)

    return fetch


def _manifest(client: Client, run_id: str, step: int) -> bytes:
    return b"".join(client.checkpoint_file(run_id, step, MANIFEST))


def _unpack(
    file: Path,
    member: Path,
    store: BlobStore,
    *,
    force: bool,
    is_part: Callable[[str], bool],
) -> list[str]:
    """Write the members of an export to the store, metrics last, and return their keys."""
    with open_zip(file, max_bytes=MAX_BYTES) as archive:
        keys = [name for name in archive.namelist() if is_part(name)]
        if len(keys) != len(archive.namelist()) or not keys:
            raise ArchiveRefused("it has a file that is no part of it")
        existing = [] if force else [key for key in keys if store.exists(key)]
        if existing:
            raise ImportSourceError(f"{existing[0]} is there already: replace it with --force")
        for key in keys:
            with archive.open(key) as content, member.open("wb") as local:
                while block := content.read(1 << 20):
                    local.write(block)
            store.put_file(key, member)
    return keys


def _is_place(name: str) -> bool:
    folder, _, rest = name.partition("/")
    return folder == EVALS and place_of(rest.partition("/")[2]) is not None


def _is_tracked(name: str) -> bool:
    return TRACKED.fullmatch(name) is not None


def _open(target: str) -> BlobStore:
    try:
        return open_store(target if target.startswith("s3://") else str(Path(target).resolve()))
    except StoreError as error:
        raise ImportSourceError(f"{target} is no place to write to: {error}") from error


def _save(blocks: Iterable[bytes], file: Path) -> None:
    with file.open("wb") as content:
        for block in blocks:
            content.write(block)


def _project(run: RunPayload) -> str:
    return str(run.spec["tracking"]["wandb"]["project"])


def _model(run: RunPayload) -> str:
    """Return the name in `model.source`, without kind, organisation and revision."""
    source = str(run.spec["model"]["source"]).partition("@")[0].rstrip("/")
    return source.rpartition("/")[2].rpartition(":")[2]


def _name(run: RunPayload) -> str:
    return f"{_part(run.name)}_{run.id[-ID_CHARS:]}"


def _part(text: str) -> str:
    return NOT_IN_NAMES.sub("_", text).strip(".") or "_"
