"""`validate`: check the tasks of a spec before training or evaluating on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.submission.submit import SET
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.console import json_of, out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.client.spec_file import read_spec
from hillclimb.datasets.filter.exclusions import exclude_failed
from hillclimb.protocol.payloads.results.validations import TaskValidationPayload, ValidationPayload

Json = dict[str, Any]

VERDICTS = ("valid", "excluded", "unproven", "unknown")
MAX_FAILURES = 20
PAGE = 1000


@main.command()
@click.argument(
    "spec_file", metavar="[SPEC]", required=False, type=click.Path(path_type=Path, dir_okay=False)
)
@SET
@click.option(
    "--show",
    "run_id",
    metavar="RUN",
    type=RUN_REFERENCE,
    help="Print the results of an earlier validation.",
)
@click.option(
    "--exclude", "excludes", is_flag=True, help="Exclude tasks that failed from later versions."
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
        raise click.UsageError("--set changes a SPEC, and --show RUN uses none: leave one out")
    code, reported = 0, True
    with connect() as client:
        if spec_file is not None:
            spec = read_spec(spec_file, assignments) | {"kind": "validate"}
            _refuse_generated(spec, excludes=excludes)
            run_id = client.submit(spec).id
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


def print_validation(
    validation: ValidationPayload, failures: Sequence[TaskValidationPayload]
) -> None:
    """Print the counts per environment, then the first tasks that failed with their reasons."""
    ending = "" if validation.complete else ", stopped early"
    out.print(
        f"\n[bold]validation[/bold] of {validation.num_tasks} tasks, coverage"
        f" {100 * validation.coverage:.0f} %{ending}"
    )
    rows = [
        (key, sum(counts.values()), *(counts.get(verdict, 0) for verdict in VERDICTS))
        for key, counts in sorted(validation.environments.items())
    ]
    print_table(table(["environment", "n>", *(f"{verdict}>" for verdict in VERDICTS)], rows))
    if validation.reasons:
        counts = ", ".join(f"{number} {reason}" for reason, number in validation.reasons.items())
        print_text(f"reasons: {counts}", style="dim")
    for row in failures[:MAX_FAILURES]:
        print_text(f"{row.task_key}: {row.detail or row.reason}", style="dim")
    if len(failures) > MAX_FAILURES:
        print_text(f"and {len(failures) - MAX_FAILURES} more: --json lists them all", style="dim")
    teacher = validation.teacher
    if teacher is not None:
        print_text(
            f"teacher: {teacher.num_requests} requests ({teacher.num_retries} retries),"
            f" {teacher.input_tokens} input tokens, {teacher.output_tokens} output tokens"
        )


def _show(client: Client, run_id: str, excluded: Json | None, *, as_json: bool) -> None:
    if as_json:
        rows = [json_of(row) for row in _rows(client, run_id)]
        first = json_of(client.validation(run_id, limit=0))
        report = {**first, "rows": rows, "has_more": False}
        print_json(report if excluded is None else {**report, "excluded": excluded})
        return
    print_validation(
        client.validation(run_id, limit=0), list(_rows(client, run_id, verdict="excluded"))
    )
    if excluded is not None:
        print_text(
            f"{excluded['num_tasks']} tasks are excluded from {excluded['dataset']}: the next"
            " version will not use them"
        )


def _refuse_generated(spec: Mapping[str, Any], *, excludes: bool) -> None:
    """Refuse --exclude for generated tasks before the run, which cannot be excluded.

    Raises:
        click.UsageError: the spec names no dataset.
    """
    if excludes and not (spec.get("data") or {}).get("dataset"):
        raise click.UsageError(
            "the spec generates its tasks: only those of a registered dataset can be excluded, so"
            " set data.dataset or leave --exclude out"
        )


def _exclude(client: Client, run_id: str) -> Json:
    """Add the tasks that failed to the dataset's exclusions; idempotent.

    A permanent exclusion keeps its reason; a temporary one becomes permanent.
    """
    dataset = client.validation(run_id, limit=0).dataset
    if dataset is None:
        raise click.UsageError(
            f"{run_id} validated generated tasks: only a registered dataset has exclusions"
        )
    failures = [exclude_failed(row) for row in _rows(client, run_id, verdict="excluded")]
    known = {
        each.key
        for each in client.datasets.exclusions(dataset.name).data
        if each.scope == "task" and each.expires_at is None
    }
    fresh = [each.model_dump(mode="json") for each in failures if each.key not in known]
    for start in range(0, len(fresh), PAGE):
        client.datasets.exclude(dataset.name, fresh[start : start + PAGE])
    return {"object": "exclusions", "dataset": dataset.name, "num_tasks": len(failures)}


def _rows(client: Client, run_id: str, **filters: str) -> Iterator[TaskValidationPayload]:
    after: int | None = 0
    while after is not None:
        page = client.validation(run_id, after=after, limit=PAGE, **filters)
        yield from page.rows
        after = page.next_after


def _has_reported(client: Client, run_id: str) -> bool:
    """Tell whether the run has reported; a failed run may not have."""
    try:
        client.validation(run_id, limit=0)
    except ApiProblem as problem:
        if problem.status == 404:
            return False
        raise
    return True
