"""`presets`: complete specs to start from."""

from __future__ import annotations

import sys

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_table, table
from hillclimb.client.client import Client


@main.command()
@click.argument("name", required=False)
@command
def presets(*, name: str | None, as_json: bool) -> None:
    """List the presets, or print the spec of NAME as YAML, to edit and submit."""
    with connect() as client:
        if name is None:
            _print_all(client, as_json=as_json)
        else:
            _print_one(client, name, as_json=as_json)


def _print_all(client: Client, *, as_json: bool) -> None:
    page = client.presets()
    if as_json:
        print_json(page)
    else:
        print_table(table(("name", "about|"), [[each.name, each.about] for each in page.data]))


def _print_one(client: Client, name: str, *, as_json: bool) -> None:
    preset = client.preset(name)
    if as_json:
        print_json(preset)
    else:
        sys.stdout.write(preset.text)
