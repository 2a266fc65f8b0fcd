"""`validate`: which tasks can be trusted, before anything is trained or measured on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from hillclimb.cli.console import out, print_json, print_table, print_text, table
from hillclimb.cli.exits import Exit
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.submit import SET
from hillclimb.cli.watch import follow_run
from hillclimb.client import Client, Json
from hillclimb.errors import ApiProblem
from hillclimb.spec_file import read_spec
from trainer.contract.datasets.exclusions import exclude_failed

VERDICTS = ("valid", "excluded", "unproven", "unknown")
MAX_SHOWN = 20
PAGE = 1000


@main.command()
@click.argument(
    "spec_file", metavar="[SPEC]", required=False, type=click.Path(path_type=Path, dir_okay=False)
)
@SET
@click.option("--show", "run_id", metavar="RUN", help="Print what a former validation found.")
@click.option(
    "--exclude", "excludes", is_flag=True, help="Leave what failed out of its dataset from now on."
)
@command
def validate(
    *,
    spec_file: Path | None,
    assignments: tuple[str, ...],
    run_id: str | None,
    excludes: bool,
    as_json: bool,
) -> None:
    """Check every task of SPEC: its recorded calls, its verifier, and with a teacher.

    SPEC may be that of a training run; its section `validation` names the teacher.
    """
    if (spec_file is None) == (run_id is None):
        raise click.UsageError("give a SPEC to validate, or --show RUN")
    if run_id is not None and assignments:
        raise click.UsageError("--set changes a SPEC, and --show RUN reads none: leave one out")
    code, reported = 0, True
    with connect() as client:
        if spec_file is not None:
            spec = read_spec(spec_file, assignments) | {"kind": "validate"}
            _refuse_generated(spec, excludes=excludes)
            run_id = client.submit(spec)["id"]
            code = follow_run(client, run_id, as_json=as_json)
            reported = _has_reported(client, run_id)
        if not reported:
            sys.exit(code or (Exit.ERROR if excludes else 0))
        excluded = _exclude(client, str(run_id)) if excludes else None
        if spec_file is None or not as_json:
            _show(client, str(run_id), excluded, as_json=as_json)
        elif excluded is not None:
            click.echo(json.dumps(excluded, separators=(",", ":")))
    sys.exit(code)


def print_validation(found: Mapping[str, Any], failures: list[Mapping[str, Any]]) -> None:
    """Print the numbers per environment, then the first tasks that failed, with the reason."""
    whole = "" if found["complete"] else ", stopped early"
    out.print(
        f"\n[bold]validation[/bold] of {found['num_tasks']} tasks, coverage"
        f" {100 * found['coverage']:.0f} %{whole}"
    )
    rows = [
        (key, sum(counts.values()), *(counts.get(verdict, 0) for verdict in VERDICTS))
        for key, counts in sorted(found["environments"].items())
    ]
    print_table(table(["environment", "n>", *(f"{verdict}>" for verdict in VERDICTS)], rows))
    if found["reasons"]:
        why = ", ".join(f"{number} {reason}" for reason, number in found["reasons"].items())
        print_text(f"reasons: {why}", style="dim")
    for row in failures[:MAX_SHOWN]:
        print_text(f"{row['task_key']}: {row['detail'] or row['reason']}", style="dim")
    if len(failures) > MAX_SHOWN:
        print_text(f"and {len(failures) - MAX_SHOWN} more: --json lists them all", style="dim")
    teacher = found["teacher"]
    if teacher is not None:
        print_text(
            f"teacher: {teacher['num_requests']} requests ({teacher['num_retries']} retries),"
            f" {teacher['input_tokens']} tokens read, {teacher['output_tokens']} written"
        )


def _show(client: Client, run_id: str, excluded: Json | None, *, as_json: bool) -> None:
    if as_json:
        rows = list(_rows(client, run_id))
        found = {**client.validation(run_id, limit=0), "rows": rows, "has_more": False}
        print_json(found if excluded is None else {**found, "excluded": excluded})
        return
    print_validation(
        client.validation(run_id, limit=0), list(_rows(client, run_id, verdict="excluded"))
    )
    if excluded is not None:
        print_text(
            f"{excluded['num_tasks']} tasks are excluded from {excluded['dataset']}: the next"
            " version leaves them out"
        )


def _refuse_generated(spec: Mapping[str, Any], *, excludes: bool) -> None:
    """Say before hours of work that nothing could be done with what they find."""
    if excludes and not (spec.get("data") or {}).get("dataset"):
        raise click.UsageError(
            "the spec generates its tasks: only those of a registered dataset can be excluded, so"
            " set data.dataset or leave --exclude out"
        )


def _exclude(client: Client, run_id: str) -> Json:
    """Hand what failed to the dataset's exclusions; repeating it changes nothing.

    A task that is kept out for good keeps its reason; one that would come back stays out now.
    """
    dataset = client.validation(run_id, limit=0)["dataset"]
    if dataset is None:
        raise click.UsageError(
            f"{run_id} validated generated tasks: only a registered dataset has exclusions"
        )
    failures = [exclude_failed(row) for row in _rows(client, run_id, verdict="excluded")]
    known = {
        each["key"]
        for each in client.datasets.exclusions(dataset["name"])["data"]
        if each["scope"] == "task" and each["expires_at"] is None
    }
    fresh = [each.model_dump(mode="json") for each in failures if each.key not in known]
    for start in range(0, len(fresh), PAGE):
        client.datasets.exclude(dataset["name"], fresh[start : start + PAGE])
    return {"object": "exclusions", "dataset": dataset["name"], "num_tasks": len(failures)}


def _rows(client: Client, run_id: str, **filters: str) -> Iterator[Mapping[str, Any]]:
    after: int | None = 0
    while after is not None:
        page = client.validation(run_id, after=after, limit=PAGE, **filters)
        yield from page["rows"]
        after = page["next_after"]


def _has_reported(client: Client, run_id: str) -> bool:
    """Tell whether the run got as far as to report: one that failed may not have."""
    try:
        client.validation(run_id, limit=0)
    except ApiProblem as problem:
        if problem.status == 404:
            return False
        raise
    return True
