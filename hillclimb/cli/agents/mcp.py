"""`mcp`: serves the client's methods as tools of the Model Context Protocol, over stdio."""

from __future__ import annotations

import sys

import click

from hillclimb.cli.agents.stdio import serve
from hillclimb.cli.agents.tools.catalog import TOOLS, Toolbox
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json


@main.command()
@click.option("--tools", "only_list", is_flag=True, help="List the tools and exit.")
@command
def mcp(*, only_list: bool, as_json: bool) -> None:
    """Serve tools for coding agents over standard input and output (Model Context Protocol).

    The tools act with the rights and the grant of HILLCLIMB_API_KEY: `hillclimb agent-key create`
    makes a key for an agent. --json has an effect with --tools alone.
    """
    if only_list:
        if as_json:
            print_json([each.described() for each in TOOLS])
            return
        for each in TOOLS:
            click.echo(f"{each.name:20}{each.summary}")
        return
    with connect() as client:
        serve(Toolbox(client), sys.stdin.buffer, sys.stdout.buffer)
