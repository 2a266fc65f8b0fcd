"""Arguments that take a RUN: an id, the beginning of one, a name, or `@last`.

And options whose values a run has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from hillclimb.client.client import Client
from hillclimb.client.connection import find_connection
from hillclimb.client.errors import HillclimbError
from hillclimb.client.resources.references import LAST, split_step

NUM_COMPLETIONS = 50
K = TypeVar("K", bound=click.ParamType)


class RunReference(click.ParamType):
    """A run, and with `at_step` an optional step after `@`; `resolve_runs` turns it into an id."""

    name = "run"

    def __init__(self, *, at_step: bool = False) -> None:
        self.at_step = at_step

    def resolved(self, client: Client, text: str) -> str:
        """Return the id of the run, with the step as it was written.

        Raises:
            RunUnknown, RunAmbiguous: none or several runs are meant.
        """
        reference, step = split_step(text) if self.at_step else (text, None)
        run_id = client.find_run(reference)
        return run_id if step is None else f"{run_id}@{step}"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the newest runs whose id or name begins so; none if no service responds."""
        try:
            with Client(find_connection()) as client:
                runs = client.runs(limit=NUM_COMPLETIONS).data
        except HillclimbError:
            return []
        items = [CompletionItem(LAST, help="the newest run")] if runs else []
        items += [CompletionItem(run.id, help=f"{run.name}, {run.status}") for run in runs]
        names = [run.name for run in runs]
        items += [CompletionItem(name) for name in names if names.count(name) == 1]
        return [item for item in items if item.value.startswith(incomplete)]


class PartOfRun(click.ParamType):
    """A value that the command's RUN has, or does not: `resolve_runs` asks."""

    def require(self, client: Client, run_id: str, text: str) -> None:
        """Refuse a value that the run does not have.

        Raises:
            HillclimbError: a sentence that names what there is.
        """
        raise NotImplementedError


RUN_REFERENCE = RunReference()
RUN_AT_STEP = RunReference(at_step=True)


def resolve_runs(values: MutableMapping[str, Any], connect: Callable[[], Client]) -> None:
    """Replace the references among the values of the command that runs by ids.

    Raises:
        HillclimbError: a run is not found or lacks a part of it that is named, or the service does
            not respond.
    """
    named = _named(RunReference, values)
    if not named:
        return
    with connect() as client:
        for name, kind in named:
            value = values[name]
            values[name] = (
                tuple(kind.resolved(client, each) for each in value)
                if isinstance(value, tuple)
                else kind.resolved(client, value)
            )
            for part, part_kind in _named(PartOfRun, values):
                part_kind.require(client, values[name], values[part])


def _named(kind: type[K], values: Mapping[str, Any]) -> list[tuple[str, K]]:
    """Return the parameters of that kind that have a value."""
    context = click.get_current_context(silent=True)
    return [
        (parameter.name, parameter.type)
        for parameter in (context.command.params if context else ())
        if isinstance(parameter.type, kind)
        and parameter.name is not None
        and values.get(parameter.name) is not None
    ]
