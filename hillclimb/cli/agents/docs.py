"""`docs`: the documentation of the service as Markdown."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json


@main.command()
@click.argument("page", metavar="PAGE", required=False)
@command
def docs(*, page: str | None, as_json: bool) -> None:
    """Print PAGE of the documentation as Markdown, such as `spec`; without PAGE, list all."""
    with connect() as client:
        documentation = client.documentation
        text = documentation.index() if page is None else documentation.page(page)
    if as_json:
        print_json({"page": page, "text": text})
    else:
        click.echo(text)
