"""`backup`, `restore`: save the embedded stack to a folder, and make a stack of one."""

from __future__ import annotations

from pathlib import Path

import click

from hillclimb.cli.main import command, main
from hillclimb.cli.stack.lifecycle import StackRefused, read_options, say
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.stack.backup.manifest import BackupManifest
from hillclimb.stack.backup.restore import restore as restore_stack
from hillclimb.stack.backup.save import save
from hillclimb.stack.errors import StackError

FOLDER = click.Path(path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@main.command()
@click.argument("directory", metavar="DIR", type=FOLDER)
@click.option(
    "--with-secrets", is_flag=True, help="Also save the keys that decrypt secrets of projects."
)
@command
def backup(*, directory: Path, with_secrets: bool, as_json: bool) -> None:
    """Save the stack, running or stopped, to the new folder DIR: database, blobs, runs.

    Without --with-secrets keep a copy of `secrets.json` elsewhere: the backup is useless to whoever
    has it alone, and secrets of projects are lost without it.
    """
    options = read_options()
    try:
        manifest = save(options, directory, with_secrets=with_secrets, say=say)
    except StackError as error:
        raise StackRefused(str(error)) from error
    _print(manifest, directory, "saved to", as_json=as_json)
    if not with_secrets and not as_json:
        print_text(f"its keys are not in it: keep {options.state_dir / 'secrets.json'} elsewhere")


@main.command()
@click.argument("directory", metavar="DIR", type=FOLDER)
@click.option("--secrets", "file", metavar="FILE", type=FILE, help="The stack's secrets.json.")
@click.option("--new-secrets", is_flag=True, help="Make new keys: secrets of projects are lost.")
@command
def restore(*, directory: Path, file: Path | None, new_secrets: bool, as_json: bool) -> None:
    """Make a stack of the backup in DIR, in a state directory that is new or empty.

    `hillclimb up` then starts it; runs that were under way resume from their newest checkpoint. Two
    stacks of one backup must not run at once.
    """
    options = read_options()
    try:
        manifest = restore_stack(options, directory, secrets=file, new_secrets=new_secrets, say=say)
    except StackError as error:
        raise StackRefused(str(error)) from error
    _print(manifest, options.state_dir, "restored to", as_json=as_json)


def _print(manifest: BackupManifest, folder: Path, verb: str, *, as_json: bool) -> None:
    size = sum(each.size_bytes for each in manifest.files)
    if as_json:
        facts = {"folder": str(folder), "files": len(manifest.files), "bytes": size}
        print_json(facts | {"created_at": manifest.created_at.isoformat()})
    else:
        print_text(f"{len(manifest.files)} files ({size:,} bytes) {verb} {folder}")
