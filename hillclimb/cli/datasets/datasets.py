"""`datasets`: create, list, show, lint and compare versions of datasets."""

from __future__ import annotations

import sys
from typing import Any

import click

from hillclimb.cli.datasets.options import READ_PUBLISHED, build_options, parse_version, tool_tokens
from hillclimb.cli.datasets.view import print_diff, print_findings, print_version
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import minute, print_json, print_table, print_text, table
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.client.client import Client
from hillclimb.client.resources.references import require_env
from hillclimb.client.spec_file import assign
from hillclimb.protocol.payloads.datasets.versions import VersionSummary

VERSION = click.argument("version", metavar="NAME[@N]")
NAME = click.argument("name", metavar="NAME")
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set one key of the options."
)
COLUMNS = ("version", "tasks>", "train>", "eval>", "envs>", "lint errors>", "created (UTC)")


@main.group()
def datasets() -> None:
    """Register tasks in immutable versions, inspect them, exclude some."""


@datasets.command()
@NAME
@click.argument("source", metavar="FILE|s3://…|NAME@N")
@click.option(
    "--policy",
    type=click.Choice(["rank", "md5_threshold"]),
    help="Policy that splits tasks into train and eval. Default: rank.",
)
@click.option("--eval-ratio", type=FiniteRange(0, 1), help="Share of eval tasks per environment.")
@click.option(
    "--held-out-env", multiple=True, metavar="ENV", help="Use this environment for evaluation only."
)
@READ_PUBLISHED
@click.option("--env", "envs", multiple=True, metavar="ENV", help="Only tasks of this environment.")
@click.option("--modality", help="Only tasks of this modality, such as tool_use.")
@click.option(
    "--difficulty", multiple=True, type=click.IntRange(1, 3), help="Only tasks of this difficulty."
)
@click.option("--max-tasks", type=click.IntRange(1), help="Limit of tasks.")
@click.option(
    "--parent", metavar="NAME@N", help="Version whose eval tasks never become training tasks."
)
@SET
@command
def create(*, name: str, source: str, as_json: bool, **choices: Any) -> None:
    """Create a version of NAME from a file of tasks, an address, or another version.

    The file is a JSON list, {"tasks": [...]}, or JSON lines, plain or gzip. --set sets any other
    option, such as --set split.max_eval_per_env=30. The same tasks with the same options return
    the same version.
    """
    file, options = build_options(source, **choices)
    with connect() as client:
        version = client.datasets.create(name, file, options)
    if as_json:
        print_json(version)
    else:
        print_version(version)


@datasets.command("list")
@limit_option(20)
@click.option("--cursor", help="Cursor of the next page.")
@command
def list_datasets(*, limit: int, cursor: str | None, as_json: bool) -> None:
    """List datasets, newest first, with their newest version."""
    with connect() as client:
        page = client.datasets.list(limit=limit, cursor=cursor)
    if as_json:
        print_json(page)
        return
    empty = "no datasets: hillclimb datasets create NAME FILE creates one"
    rows = [_row(each.newest) for each in page.data if each.newest]
    print_table(table(COLUMNS, rows), empty=empty)
    if page.has_more:
        print_text(f"more: hillclimb datasets list --cursor {page.next_cursor}", style="dim")


@datasets.command()
@VERSION
@click.option("--versions", "all_versions", is_flag=True, help="List all versions instead.")
@command
def show(*, version: str, all_versions: bool, as_json: bool) -> None:
    """Show a version: environments, excluded tasks with reasons, lint findings."""
    name, number = parse_version(version)
    if all_versions and number != "latest":
        raise click.UsageError(f"--versions lists all of {name}: leave @{number} out")
    with connect() as client:
        if all_versions:
            _show_versions(client, name, as_json=as_json)
            return
        payload = client.datasets.version(name, number)
    if as_json:
        print_json(payload)
    else:
        print_version(payload)


def _show_versions(client: Client, name: str, *, as_json: bool) -> None:
    page = client.datasets.versions(name, limit=200)
    if as_json:
        print_json(page)
    else:
        lines = [[*_row(each), each.source] for each in page.data]
        print_table(table([*COLUMNS, "from"], lines))


@datasets.command()
@VERSION
@click.option(
    "--tool-tokens", multiple=True, metavar="ENV=N", help="Tokens of its tools; repeatable."
)
@click.option(
    "--max-input-length", type=click.IntRange(1), help="Longest input of the model (tokens)."
)
@SET
@command
def lint(*, version: str, assignments: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Lint a version again, for example against a model's context. Exit code 1 on errors.

    Token counts without --tool-tokens are those of the newest run.
    """
    name, number = parse_version(version)
    options: dict[str, Any] = {"tool_tokens": tool_tokens(flags["tool_tokens"])}
    if flags["max_input_length"] is not None:
        options["max_input_length"] = flags["max_input_length"]
    for assignment in assignments:
        assign(options, assignment)
    if options["tool_tokens"] and options.get("max_input_length") is None:
        raise click.UsageError(
            "--tool-tokens has no effect alone: add --max-input-length, the limit to compare with"
        )
    with connect() as client:
        findings = client.datasets.lint(name, number, options)
    if as_json:
        print_json(findings)
    else:
        print_findings(findings.data)
    has_errors = any(finding.severity == "error" for finding in findings.data)
    sys.exit(Exit.ERROR if has_errors else Exit.OK)


@datasets.command()
@click.argument("before", metavar="NAME@N")
@click.argument("after", metavar="NAME[@N]")
@command
def diff(*, before: str, after: str, as_json: bool) -> None:
    """Show the tasks that were added, removed, changed or moved between two versions."""
    (base_name, base), (name, number) = parse_version(before), parse_version(after)
    with connect() as client:
        if base == "latest":
            base = str(client.datasets.version(base_name).number)
        changes = client.datasets.diff(name, int(base), number, base_name=base_name)
    if as_json:
        print_json(changes)
    else:
        print_diff(changes)


@datasets.command()
@VERSION
@click.option("--env", metavar="ENV", help="Only this environment.")
@click.option("--split", type=click.Choice(["train", "eval", "excluded"]), help="Only this split.")
@click.option("--search", metavar="TEXT", help="Only keys that contain this text.")
@limit_option(20)
@click.option("--cursor", help="Cursor of the next page.")
@click.option("--key", help="Print the task with this key in full.")
@command
def rows(*, version: str, key: str | None, as_json: bool, **filters: Any) -> None:
    """List the tasks of a version by key, or show one."""
    name, number = parse_version(version)
    unused = [flag for flag in ("env", "split", "search", "cursor") if filters[flag] is not None]
    if key is not None and unused:
        raise click.UsageError(
            f"--key shows one task, so --{unused[0]} has no effect: use one of them"
        )
    with connect() as client:
        if key is not None:
            print_json(client.datasets.task(name, key, number))
            return
        page = client.datasets.tasks(name, number, **filters)
        if not page.data and (env := filters["env"]) is not None:
            require_env(env, client.datasets.version(name, number).envs, version)
    if as_json:
        print_json(page)
        return
    lines = [(task.key, task.env_key, task.split, _short(task.prompt)) for task in page.data]
    columns = ["task", "env", "split", "prompt"]
    print_table(table(columns, lines), empty=f"no tasks fit: hillclimb datasets rows {version}")
    if page.has_more:
        print_text(f"more: add --cursor {page.next_cursor}", style="dim")


def _row(version: VersionSummary) -> list[object]:
    return [
        f"{version.name}@{version.number}",
        version.num_tasks,
        version.num_train,
        version.num_eval,
        version.num_envs,
        version.num_lint_errors,
        minute(version.created_at),
    ]


def _short(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
