"""`datasets`: register tasks, look at them, keep tasks and environments out."""

from __future__ import annotations

import sys
from typing import Any

import click

from hillclimb.cli.console import print_json, print_table, print_text, table
from hillclimb.cli.dataset_options import (
    READ_PUBLISHED,
    build_options,
    parse_version,
    tool_tokens,
)
from hillclimb.cli.dataset_view import print_diff, print_findings, print_version
from hillclimb.cli.exits import Exit
from hillclimb.cli.finite import FiniteRange
from hillclimb.cli.main import command, connect, main
from hillclimb.spec_file import assign

VERSION = click.argument("version", metavar="NAME[@N]")
NAME = click.argument("name", metavar="NAME")
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set one key of the options."
)
COLUMNS = ("version", "tasks>", "train>", "eval>", "envs>", "lint errors>", "created (UTC)")


@main.group()
def datasets() -> None:
    """Register tasks in immutable versions, look at them, keep some out."""


@datasets.command()
@NAME
@click.argument("source", metavar="FILE|s3://…|NAME@N")
@click.option(
    "--policy",
    type=click.Choice(["rank", "md5_threshold"]),
    help="How tasks are parted into train and eval. Default: rank.",
)
@click.option("--eval-ratio", type=FiniteRange(0, 1), help="Share of each environment's tasks.")
@click.option("--held-out-env", multiple=True, metavar="ENV", help="Only evaluate on it.")
@READ_PUBLISHED
@click.option("--env", "envs", multiple=True, metavar="ENV", help="Take only its tasks.")
@click.option("--modality", help="Take only tasks of it, such as tool_use.")
@click.option("--difficulty", multiple=True, type=click.IntRange(1, 3), help="Take only these.")
@click.option("--max-tasks", type=click.IntRange(1), help="Take at most so many.")
@click.option("--parent", metavar="NAME@N", help="Its eval tasks never become training tasks.")
@SET
@command
def create(*, name: str, source: str, as_json: bool, **choices: Any) -> None:
    """Create a version of NAME from a file of tasks, an address, or another version.

    The file is a JSON list, {"tasks": [...]}, or JSON lines, plain or gzip. --set reaches every
    other option, such as --set split.max_eval_per_env=30. The same tasks with the same options
    give the same version again.
    """
    file, options = build_options(source, **choices)
    with connect() as client:
        version = client.datasets.create(name, file, options)
    if as_json:
        print_json(version)
    else:
        print_version(version)


@datasets.command("list")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 200))
@click.option("--cursor", help="Continue a former page.")
@command
def list_datasets(*, limit: int, cursor: str | None, as_json: bool) -> None:
    """List datasets, newest first, with their newest version."""
    with connect() as client:
        page = client.datasets.list(limit=limit, cursor=cursor)
    if as_json:
        print_json(page)
        return
    print_table(table(COLUMNS, [_row(each["newest"]) for each in page["data"] if each["newest"]]))
    if page["has_more"]:
        print_text(f"more: hillclimb datasets list --cursor {page['next_cursor']}", style="dim")


@datasets.command()
@VERSION
@click.option("--versions", "all_versions", is_flag=True, help="List all versions instead.")
@command
def show(*, version: str, all_versions: bool, as_json: bool) -> None:
    """Show a version: environments, what was left out and why, lint."""
    name, number = parse_version(version)
    if all_versions and number != "latest":
        raise click.UsageError(f"--versions lists all of {name}: leave @{number} out")
    with connect() as client:
        found = (
            client.datasets.versions(name, limit=200)
            if all_versions
            else client.datasets.version(name, number)
        )
    if as_json:
        print_json(found)
    elif all_versions:
        lines = [[*_row(each), each["source"]] for each in found["data"]]
        print_table(table([*COLUMNS, "from"], lines))
    else:
        print_version(found)


@datasets.command()
@VERSION
@click.option(
    "--tool-tokens", multiple=True, metavar="ENV=N", help="Tokens that its tools take; repeatable."
)
@click.option("--max-input-length", type=click.IntRange(1), help="Tokens the model may read.")
@SET
@command
def lint(*, version: str, assignments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Lint a version again, for example against a model's context. Exit code 1 on errors.

    Tokens of tools that are not given are those that the newest run counted.
    """
    name, number = parse_version(version)
    options: dict[str, Any] = {"tool_tokens": tool_tokens(given["tool_tokens"])}
    if given["max_input_length"] is not None:
        options["max_input_length"] = given["max_input_length"]
    for assignment in assignments:
        assign(options, assignment)
    if options["tool_tokens"] and options.get("max_input_length") is None:
        raise click.UsageError(
            "--tool-tokens does nothing alone: give --max-input-length, what they must fit in"
        )
    with connect() as client:
        found = client.datasets.lint(name, number, options)
    if as_json:
        print_json(found)
    else:
        print_findings(found["data"])
    has_errors = any(each["severity"] == "error" for each in found["data"])
    sys.exit(Exit.ERROR if has_errors else Exit.OK)


@datasets.command()
@click.argument("before", metavar="NAME@N")
@click.argument("after", metavar="NAME[@N]")
@command
def diff(*, before: str, after: str, as_json: bool) -> None:
    """Show which tasks came, went, changed and moved from one version to another."""
    (base_name, base), (name, number) = parse_version(before), parse_version(after)
    with connect() as client:
        if base == "latest":
            base = client.datasets.version(base_name)["number"]
        found = client.datasets.diff(name, int(base), number, base_name=base_name)
    if as_json:
        print_json(found)
    else:
        print_diff(found)


@datasets.command()
@VERSION
@click.option("--env", metavar="ENV", help="Only this environment.")
@click.option("--split", type=click.Choice(["train", "eval", "excluded"]), help="Only this part.")
@click.option("--search", metavar="TEXT", help="Only keys with this in them.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 200))
@click.option("--cursor", help="Continue a former page.")
@click.option("--key", help="Print one task whole.")
@command
def rows(*, version: str, key: str | None, as_json: bool, **filters: Any) -> None:
    """List the tasks of a version by key, or show one."""
    name, number = parse_version(version)
    beside = [flag for flag in ("env", "split", "search", "cursor") if filters[flag] is not None]
    if key is not None and beside:
        raise click.UsageError(f"--key shows one task, so --{beside[0]} does nothing: give one")
    with connect() as client:
        if key is not None:
            print_json(client.datasets.task(name, key, number))
            return
        page = client.datasets.tasks(name, number, **filters)
    if as_json:
        print_json(page)
        return
    shown = [
        (each["key"], each["env_key"], each["split"], _short(each["prompt"]))
        for each in page["data"]
    ]
    print_table(table(["task", "env", "split", "prompt"], shown))
    if page["has_more"]:
        print_text(f"more: add --cursor {page['next_cursor']}", style="dim")


def _row(version: dict[str, Any]) -> list[object]:
    counts = [version[f"num_{part}"] for part in ("tasks", "train", "eval", "envs", "lint_errors")]
    return [f"{version['name']}@{version['number']}", *counts, version["created_at"][:16]]


def _short(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
