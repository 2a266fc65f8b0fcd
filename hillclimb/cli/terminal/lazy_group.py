"""A group of commands whose modules are imported when a command is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click

from hillclimb.cli.terminal.suggestions import SuggestingGroup
from hillclimb.process.lazy_imports import gc_paused_import


class LazyGroup(SuggestingGroup):
    """A group that knows its commands' names and imports the modules of one that is asked for.

    A module registers its command on the group as it is imported; groups below are ordinary ones.
    """

    group_class: type[click.Group] = SuggestingGroup
    modules: Mapping[str, tuple[str, ...]] = {}
    """Names of modules by command."""
    sections: Mapping[str, str] = {}
    """Titles of the help's sections by the folder of a command's first module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, imported or not."""
        return sorted({*super().list_commands(ctx), *self.modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command after its modules are imported; None if there is none of the name."""
        self._load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in sections."""
        for folder, title in self.sections.items():
            names = [name for name, modules in self.modules.items() if f".{folder}." in modules[0]]
            self.write_commands(ctx, formatter, title, sorted(names))

    def load_all(self) -> None:
        """Import the modules of all commands."""
        for name in self.modules:
            self._load(name)

    def _load(self, name: str) -> None:
        with gc_paused_import():
            for module in self.modules.get(name, ()):
                import_module(module)
