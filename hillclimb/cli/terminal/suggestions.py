"""Groups of commands that say which command a misspelt word may have meant."""

from __future__ import annotations

import difflib

import click

NUM_SUGGESTIONS = 3


class SuggestingGroup(click.Group):
    """A group whose refusal of an unknown command names similar ones."""

    group_class: type = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; an unknown one is refused with what may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=NUM_SUGGESTIONS)
            if not close:
                raise
            meant = " or ".join(close)
            raise click.UsageError(
                f"{error.message.rstrip('.')}; did you mean {meant}?", ctx=ctx
            ) from error
