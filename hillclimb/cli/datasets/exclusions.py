"""`datasets exclude`, `quarantine`, `include`, `exclusions`: what is kept out of a dataset."""

from __future__ import annotations

from typing import Any

import click

from hillclimb.cli.console import out, print_json, print_table, table
from hillclimb.cli.dataset_options import parse_end
from hillclimb.cli.datasets import NAME, datasets
from hillclimb.cli.main import command, connect

END = "3d, 12h, 30m, or a date; then it ends by itself."
REASON = click.option("--reason", required=True, help="Why, in words: it is shown everywhere.")


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
    """Leave tasks, or environments, out of the versions made from now on.

    With an end, tasks are left out of the versions made until then, and environments are in
    quarantine: versions keep them, and no run gets them until then.
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
    """Give no run tasks of these environments for a while; versions keep them."""
    draft = {"scope": "env", "reason": reason, "expires_at": parse_end(until)}
    _exclude(name, envs, draft, as_json=as_json)


@datasets.command()
@NAME
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("--env", "is_env", is_flag=True, help="The keys are environments.")
@command
def include(*, name: str, keys: tuple[str, ...], is_env: bool, as_json: bool) -> None:
    """Let excluded tasks, or environments, in again."""
    scope = "env" if is_env else "task"
    with connect() as client:
        there = client.datasets.exclusions(name, also_past=True)["data"]
        ids = {each["key"]: each["id"] for each in there if each["scope"] == scope}
        strangers = [key for key in keys if key not in ids]
        if strangers:
            raise click.UsageError(f"{name} excludes no {scope} {strangers[0]!r}")
        removed = [client.datasets.include(name, ids[key]) for key in keys]
    if as_json:
        print_json(removed)
    else:
        out.print(f"{len(removed)} let in again: the next version or run has them")


@datasets.command()
@NAME
@click.option("--all", "also_past", is_flag=True, help="Also those that are over.")
@command
def exclusions(*, name: str, also_past: bool, as_json: bool) -> None:
    """List what is kept out of NAME, and why."""
    with connect() as client:
        found = client.datasets.exclusions(name, also_past=also_past)
    if as_json:
        print_json(found)
    else:
        _print_exclusions(found["data"])


def _exclude(name: str, keys: tuple[str, ...], draft: dict[str, Any], *, as_json: bool) -> None:
    with connect() as client:
        added = client.datasets.exclude(name, [{**draft, "key": key} for key in keys])
    if as_json:
        print_json(added)
    else:
        _print_exclusions(added["data"])


def _print_exclusions(found: list[dict[str, Any]]) -> None:
    cells = [
        (
            each["scope"],
            each["key"],
            each["source"],
            (each["expires_at"] or "–")[:16],
            each["reason"],
        )
        for each in found
    ]
    print_table(table(["scope", "key", "found by", "until (UTC)", "reason"], cells))
