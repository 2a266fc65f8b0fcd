"""`datasets pull`: download a version's files."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

import click

from hillclimb.cli.datasets.datasets import VERSION, datasets
from hillclimb.cli.datasets.options import parse_version
from hillclimb.cli.main import command, connect
from hillclimb.cli.terminal.console import out, print_json
from hillclimb.cli.terminal.folder import Folder
from hillclimb.client.client import Client
from hillclimb.client.errors import DownloadFailed
from hillclimb.protocol.payloads.datasets.versions import VersionPayload


@datasets.command()
@VERSION
@click.argument("directory", metavar="DIR", type=Folder())
@command
def pull(*, version: str, directory: Path, as_json: bool) -> None:
    """Download the tasks and the split of a version to DIR, as compressed JSON lines."""
    name, number = parse_version(version)
    with connect() as client:
        payload = client.datasets.version(name, number)
        hashes = {"tasks": payload.content_hash, "split": payload.split_hash}
        directory.mkdir(parents=True, exist_ok=True)
        files = [_pull(client, payload, kind, sha256, directory) for kind, sha256 in hashes.items()]
    if as_json:
        print_json({"name": name, "number": payload.number, "files": files})
    else:
        out.print(f"{name}@{payload.number}: {payload.num_tasks:,} tasks", soft_wrap=True)
        for file in files:
            out.print(f"  {file}", soft_wrap=True)


def _pull(client: Client, version: VersionPayload, kind: str, sha256: str, directory: Path) -> str:
    target = directory / f"{version.name}-{version.number}.{kind}.jsonl.gz"
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as file:
        for block in client.datasets.file(version.name, kind, version.number):
            file.write(block)
    if _content_hash(partial) != sha256:
        partial.unlink()
        raise DownloadFailed(f"{target.name} arrived damaged: its checksum differs; pull again")
    partial.replace(target)
    return str(target)


def _content_hash(path: Path) -> str | None:
    """Return the SHA-256 of a file's unpacked content, or None if it cannot be unpacked."""
    try:
        with gzip.open(path, "rb") as lines:
            return hashlib.file_digest(lines, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error):
        return None
