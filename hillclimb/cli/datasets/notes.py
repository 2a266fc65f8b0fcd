"""`datasets note`: a note on a dataset version."""

from __future__ import annotations

import click

from hillclimb.cli.datasets.datasets import VERSION, datasets
from hillclimb.cli.datasets.options import parse_version
from hillclimb.cli.main import command, connect
from hillclimb.cli.terminal.console import print_json, print_text


@datasets.command()
@VERSION
@click.argument("text", metavar="TEXT")
@command
def note(*, version: str, text: str, as_json: bool) -> None:
    """Replace the note of a version; an empty TEXT removes it."""
    name, number = parse_version(version)
    with connect() as client:
        noted = client.datasets.annotate(name, number, note=text)
    if as_json:
        print_json(noted)
    else:
        print_text(f"{noted.name}@{noted.number}  {noted.note or 'no note'}")
