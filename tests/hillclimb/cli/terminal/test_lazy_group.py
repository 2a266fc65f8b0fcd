"""Commands are imported when they are used, and the table of their modules is complete."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import click

import hillclimb.cli
from hillclimb.cli.commands import MODULES, complete


def registered() -> dict[str, set[str]]:
    """Return the modules in which each command, or one below it, is written."""
    for module in pkgutil.walk_packages(hillclimb.cli.__path__, "hillclimb.cli."):
        if not module.name.endswith("__main__") and ".template" not in module.name:
            import_module(module.name)
    return {name: set(_modules_of(each)) for name, each in complete().commands.items()}


def _modules_of(command: click.Command) -> list[str]:
    function, modules = command.callback, []
    while function is not None and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if function is not None:
        modules.append(function.__module__.removeprefix("hillclimb.cli."))
    if isinstance(command, click.Group):
        modules += [name for each in command.commands.values() for name in _modules_of(each)]
    return modules


def test_every_command_of_every_module_is_in_the_table() -> None:
    assert registered() == {name: set(modules) for name, modules in MODULES.items()}


def test_a_command_of_the_service_imports_neither_servers_nor_other_commands() -> None:
    """Psycopg, redis and FastMCP took two thirds of the time that each command started in."""
    script = (
        "import sys; from hillclimb.cli.commands import main;"
        "main.get_command(None, 'show'); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert {"psycopg", "redis", "sqlalchemy", "hillclimb.stack.control", "mcp"}.isdisjoint(
        done.stdout.split()
    )
