"""`presets`: complete specs to start from."""

from __future__ import annotations

import sys

import click

from hillclimb.cli.console import print_json, print_table, table
from hillclimb.cli.main import command, connect, main


@main.command()
@click.argument("name", required=False)
@command
def presets(*, name: str | None, as_json: bool) -> None:
    """List the presets, or print the spec of NAME as YAML, to edit and submit."""
    with connect() as client:
        answer = client.presets() if name is None else client.preset(name)
    if as_json:
        print_json(answer)
    elif name is not None:
        sys.stdout.write(answer["text"])
    else:
        print_table(table(("name", "about"), [[e["name"], e["about"]] for e in answer["data"]]))
