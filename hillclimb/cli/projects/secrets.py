"""`secrets`: values that the service keeps for the project's trainers."""

from __future__ import annotations

from typing import IO

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import minute, out, print_json, print_table, print_text, table

NAME = click.argument("name")


@main.group()
def secrets() -> None:
    """Keep secrets of the project, encrypted: specs name them, and only trainers receive them."""


@secrets.command("set")
@NAME
@click.option(
    "--file", "source", type=click.File("r"), metavar="FILE", help="Read the value from FILE."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A server to which specs may send it, such as api.example.org; repeatable. Default: as"
    " before, at first none.",
)
@click.option("--no-hosts", is_flag=True, help="Only the platform that its variable is named for.")
@command
def set_(
    *, name: str, source: IO[str] | None, hosts: tuple[str, ...], no_hosts: bool, as_json: bool
) -> None:
    """Store a value as NAME, from standard input or a file, never from the command line.

    In a terminal it is prompted for. One line break at its end is left out.
    """
    if hosts and no_hosts:
        raise click.UsageError("--host and --no-hosts exclude each other.")
    stdin = click.get_text_stream("stdin")
    if source is not None:
        value = source.read()
    elif stdin.isatty():
        value = click.prompt(f"Value of {name}", hide_input=True, err=True)
    else:
        value = stdin.read()
    with connect() as client:
        secret = client.secrets.set(
            name,
            value.removesuffix("\n").removesuffix("\r"),
            hosts=hosts if hosts or no_hosts else None,
        )
    if as_json:
        print_json(secret)
        return
    out.print(f"{name} is stored (version {secret.version})", highlight=False)
    print_text(f"A spec receives it with secrets: {{VARIABLE: {name}}}.")
    if secret.hosts:
        print_text(f"A spec may send it to {', '.join(secret.hosts)} alone.")


@secrets.command("list")
@command
def list_(*, as_json: bool) -> None:
    """List the names of the secrets, with their versions and last uses."""
    with connect() as client:
        page = client.secrets.list()
    if as_json:
        print_json(page)
        return
    rows = [
        (
            each.name,
            str(each.version),
            ", ".join(each.hosts),
            each.updated_by,
            minute(each.updated_at),
            "never" if each.used_at is None else minute(each.used_at),
        )
        for each in page.data
    ]
    print_table(
        table(["name", "version>", "hosts", "set by", "set (UTC)", "last used (UTC)"], rows)
    )
    if not page.data:
        print_text("No secrets yet: `hillclimb secrets set NAME` stores one.")


@secrets.command()
@NAME
@command
def delete(*, name: str, as_json: bool) -> None:
    """Delete the secret NAME; refused while a run that has not ended names it."""
    with connect() as client:
        deleted = client.secrets.delete(name)
    if as_json:
        print_json(deleted)
    else:
        out.print(f"{name} is deleted", highlight=False)


@secrets.command()
@command
def reencrypt(*, as_json: bool) -> None:
    """Encrypt with the operator's newest master key what an older one encrypted."""
    with connect() as client:
        result = client.secrets.reencrypt()
    if as_json:
        print_json(result)
    else:
        out.print(f"{result.num_reencrypted} secrets now use the master key {result.key_id!r}")
