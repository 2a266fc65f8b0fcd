"""Commands are imported when they are used, and the table of their modules is complete."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import click
from click.testing import CliRunner

import hillclimb.cli
from hillclimb.cli.commands import MODULES, SECTIONS, complete


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


def test_the_help_has_each_command_once_in_a_section_with_a_whole_sentence() -> None:
    help_text = CliRunner().invoke(complete(), ["--help"], terminal_width=80).output
    commands = re.findall(r"^  ([a-z]+(?:-[a-z]+)?) +[A-Z]", help_text, re.M)
    assert sorted(commands) == sorted(MODULES)
    assert re.findall(r"^([A-Z].+):$", help_text, re.M)[1:] == list(SECTIONS.values())
    assert "...\n" not in help_text.partition("Options:")[2]
    assert "A RUN is an id" in help_text


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for below, each in command.commands.items():
        yield from leaves(each, f"{name} {below}")


def test_every_command_and_option_says_what_it_is_for() -> None:
    silent = [
        f"{name} {parameter.opts[-1]}"
        for name, command in leaves(complete(), "hillclimb")
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert silent == []
    assert [name for name, command in leaves(complete(), "hillclimb") if not command.help] == []


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


def test_no_garbage_is_collected_while_a_command_is_imported() -> None:
    """Collections took a fifth of the CPU time of a command's start."""
    script = (
        "import gc; starts = []; gc.callbacks.append(lambda phase, info: starts.append(phase));"
        "from hillclimb.cli.commands import main; main.get_command(None, 'submit');"
        "print(starts.count('start'), gc.isenabled())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    collections, is_on = done.stdout.split()
    assert int(collections) <= 2, "one after each import may follow"
    assert is_on == "True"
