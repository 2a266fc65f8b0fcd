"""`open`, `login`, `logout`, `env`: reach the service from a browser, a terminal and scripts."""

from __future__ import annotations

import shlex

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import err, out, print_json, print_text
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.connection import (
    KEY,
    URL,
    checked_connection,
    find_connection,
    forget_login,
    store_login,
)


@main.command("open")
@click.argument("run_id", metavar="[RUN]", required=False, type=RUN_REFERENCE)
@click.option("--print", "only_prints", is_flag=True, help="Print the link, open no browser.")
@command
def open_page(*, run_id: str | None, only_prints: bool, as_json: bool) -> None:
    """Open the page of RUN, or the list of runs, in a browser that the link's button signs in.

    The link works once and for a few minutes: it needs no key, so share it with nobody.
    """
    with connect() as client:
        if run_id is not None:
            client.run(run_id)
        link = client.session_url("/" if run_id is None else f"/runs/{run_id}")
    if as_json:
        print_json({"url": link})
        return
    print_text(link)
    if out.is_terminal and not only_prints:
        click.launch(link)


@main.command()
@click.option("--url", prompt="Address of the service", help="Such as https://hillclimb.example.")
@command
def login(*, url: str, as_json: bool) -> None:
    """Store the address of a service and a key, which is asked for and not shown.

    They count where neither HILLCLIMB_API_URL and HILLCLIMB_API_KEY are set nor a stack of
    `hillclimb up` is in or above the working directory.
    """
    key = click.prompt("API key", hide_input=True, err=True)
    service = checked_connection(url, key)
    with Client(service) as client:
        client.runs(limit=1)
    file = store_login(service)
    if as_json:
        print_json({"url": service.url, "file": str(file)})
    else:
        print_text(f"signed in to {service.url}; the key is in {file}")


@main.command()
@command
def logout(*, as_json: bool) -> None:
    """Forget the address and the key that `login` stored."""
    was_there = forget_login()
    if as_json:
        print_json({"forgotten": was_there})
    else:
        print_text("forgotten" if was_there else "nothing was stored")


@main.group("env", invoke_without_command=True)
@command
def environment(*, as_json: bool) -> None:
    """Print the address and the key of the service for a shell: eval "$(hillclimb env)".

    The commands below are about an environment of your own to train on.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    service = find_connection()
    values = {URL: service.url, KEY: service.api_key}
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    if out.is_terminal:
        err.print('to set them in this shell: eval "$(hillclimb env)"', style="dim", markup=False)
