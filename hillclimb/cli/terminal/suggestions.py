"""Groups of commands that say which command a misspelt word may have meant."""

from __future__ import annotations

import difflib

import click

NUM_SUGGESTIONS = 3
MAX_LISTED = 12
"""Commands of a group that a refusal lists where none is similar; more would hide the refusal."""


class SuggestingGroup(click.Group):
    """A group whose refusal of an unknown command names similar ones, or else its few."""

    group_class: type = type

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
