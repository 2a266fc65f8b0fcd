"""Groups of commands: a line on each, and which one a misspelt word may have meant."""

from __future__ import annotations

import difflib

import click

NUM_SUGGESTIONS = 3
INDENT = 6
"""Columns of a list of commands besides their names and texts."""
LONGEST_SENTENCE = 400
"""Characters within which click finds the end of a first sentence."""
MAX_LISTED = 12
"""Commands of a group that a refusal lists where none is similar; more would hide the refusal."""


class SuggestingGroup(click.Group):
    """A group whose refusal of an unknown command names similar ones, or else its few."""

    group_class: type = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their first sentences."""
        self.write_commands(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: list[str]
    ) -> None:
        """Write a section of commands, each with a sentence that is not cut."""
        width = max(len(name) for name in self.list_commands(ctx))
        commands = [(name, self.get_command(ctx, name)) for name in names]
        lines = [
            (name.ljust(width), _brief(command, formatter.width - width - INDENT))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; an unknown one is refused with what may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(args[0], known, n=NUM_SUGGESTIONS)
            if not close and len(known) > MAX_LISTED:
                raise
            hint = (
                f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
            )
            raise click.UsageError(f"{error.message.rstrip('.')}; {hint}", ctx=ctx) from error


def _brief(command: click.Command, width: int) -> str:
    """Return a command's first sentence; of one that is longer than a line, up to its semicolon."""
    sentence = command.get_short_help_str(LONGEST_SENTENCE).rstrip(".")
    return sentence if len(sentence) <= width else sentence.partition(";")[0]
