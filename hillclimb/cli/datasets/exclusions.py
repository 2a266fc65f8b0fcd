"""`datasets exclude`, `quarantine`, `include`, `exclusions`: exclusions of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hillclimb.cli.datasets.datasets import NAME, datasets
from hillclimb.cli.datasets.options import parse_end
from hillclimb.cli.main import command, connect
from hillclimb.cli.terminal.console import json_of, minute, out, print_json, print_table, table
from hillclimb.protocol.payloads.datasets.exclusions import ExclusionPayload

END = "3d, 12h, 30m, or a date, after which the exclusion expires."
REASON = click.option("--reason", required=True, help="Reason, displayed with the exclusion.")


@datasets.command()
@NAME
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("--env", "is_env", is_flag=True, help="The keys are environments.")
@REASON
@click.option("--for", "--until", "until", metavar="TIME", help=END)
@command
def exclude(
    *,
    name: str,
    keys: tuple[str, ...],
    is_env: bool,
    reason: str,
    until: str | None,
    as_json: bool,
) -> None:
    """Exclude tasks, or environments, from the versions created from now on.

    With --for, tasks are excluded from the versions created until then, and environments are in
    quarantine: versions keep them, but no run uses them until then.
    """
    draft: dict[str, Any] = {"scope": "env" if is_env else "task", "reason": reason}
    if until is not None:
        draft["expires_at"] = parse_end(until)
    _exclude(name, keys, draft, as_json=as_json)


@datasets.command()
@NAME
@click.argument("envs", metavar="ENV...", nargs=-1, required=True)
@REASON
@click.option("--for", "--until", "until", required=True, metavar="TIME", help=END)
@command
def quarantine(*, name: str, envs: tuple[str, ...], reason: str, until: str, as_json: bool) -> None:
    """Quarantine environments: no run uses their tasks for a while; versions keep them."""
    draft = {"scope": "env", "reason": reason, "expires_at": parse_end(until)}
    _exclude(name, envs, draft, as_json=as_json)


@datasets.command()
@NAME
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("--env", "is_env", is_flag=True, help="The keys are environments.")
@command
def include(*, name: str, keys: tuple[str, ...], is_env: bool, as_json: bool) -> None:
    """Remove the exclusions of tasks, or environments."""
    scope = "env" if is_env else "task"
    with connect() as client:
        current = client.datasets.exclusions(name, also_past=True).data
        ids = {each.key: each.id for each in current if each.scope == scope}
        unknown = [key for key in keys if key not in ids]
        if unknown:
            raise click.UsageError(f"{name} excludes no {scope} {unknown[0]!r}")
        removed = [client.datasets.include(name, ids[key]) for key in keys]
    if as_json:
        print_json([json_of(each) for each in removed])
    else:
        out.print(f"{len(removed)} included again, from the next version or run on")


@datasets.command()
@NAME
@click.option("--all", "also_past", is_flag=True, help="Also expired and removed ones.")
@command
def exclusions(*, name: str, also_past: bool, as_json: bool) -> None:
    """List the exclusions of NAME with their reasons."""
    with connect() as client:
        page = client.datasets.exclusions(name, also_past=also_past)
    if as_json:
        print_json(page)
    else:
        _print_exclusions(page.data)


def _exclude(name: str, keys: tuple[str, ...], draft: dict[str, Any], *, as_json: bool) -> None:
    with connect() as client:
        added = client.datasets.exclude(name, [{**draft, "key": key} for key in keys])
    if as_json:
        print_json(added)
    else:
        _print_exclusions(added.data)


def _print_exclusions(exclusions: Sequence[ExclusionPayload]) -> None:
    rows = [
        (
            each.scope,
            each.key,
            each.source,
            "–" if each.expires_at is None else minute(each.expires_at),
            each.reason,
        )
        for each in exclusions
    ]
    columns = ["scope", "key", "source", "until (UTC)", "reason|"]
    print_table(table(columns, rows), empty="nothing is excluded")
