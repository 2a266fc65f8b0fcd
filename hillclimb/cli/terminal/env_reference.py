"""Options that take an environment: the shell completes its key, and a misspelt one is refused."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem

from hillclimb.cli.terminal.run_reference import PartOfRun, RunReference
from hillclimb.client.client import Client
from hillclimb.client.connection import find_connection
from hillclimb.client.errors import HillclimbError
from hillclimb.client.resources.references import require_env, split_step
from hillclimb.spec.run import MINIFLEET_ENV_KEYS


class EnvReference(PartOfRun):
    """The key of an environment; of a command about a run, one of that run's."""

    name = "env"

    def require(self, client: Client, run_id: str, text: str) -> None:
        """Refuse an environment that the run does not have.

        Raises:
            EnvUnknown: the sentence names those of the run.
        """
        require_env(text, client.run(run_id).spec["data"]["env_keys"], run_id)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the run's environments, without a run the miniature ones."""
        run = next(_run_among(ctx), None)
        keys = MINIFLEET_ENV_KEYS if run is None else _env_keys_of(run)
        return [CompletionItem(key) for key in keys if key.startswith(incomplete)]


def _run_among(ctx: click.Context) -> Iterator[str]:
    """Yield the run that the words before the option name, if the command takes one.

    An option that has no value yet keeps click from assigning the arguments before it.
    """
    for parameter in ctx.command.params:
        if isinstance(parameter.type, RunReference):
            named = ctx.params.get(parameter.name or "")
            yield from map(str, [named] if named else ctx.args[:1])


def _env_keys_of(reference: str) -> tuple[str, ...]:
    """Return the environments of a run; none if it is not found or no service responds."""
    try:
        with Client(find_connection()) as client:
            run = client.run(client.find_run(split_step(reference)[0]))
    except HillclimbError:
        return ()
    return tuple(run.spec["data"]["env_keys"])


ENV_REFERENCE = EnvReference()
