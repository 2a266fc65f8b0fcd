"""`prompts` and `preview`: print rendered prompts and their token counts."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.submission.submit import SET, SPEC
from hillclimb.cli.terminal.console import (
    err,
    out,
    print_json,
    print_page,
    print_table,
    print_text,
    table,
)
from hillclimb.cli.terminal.env_reference import ENV_REFERENCE
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import HillclimbError
from hillclimb.client.resources.references import require_env
from hillclimb.client.spec_file import read_spec
from hillclimb.protocol.payloads.results.prompts import (
    EnvPromptsPayload,
    PromptsPayload,
    PromptTextPayload,
    TokenSpreadPayload,
)
from hillclimb.protocol.payloads.runs import RunPayload
from hillclimb.protocol.payloads.statuses import RunStatus

ENDED = frozenset({"succeeded", "failed", "cancelled", "paused"})
"""Statuses after which a preview makes no more progress by itself."""
POLL_S = 0.3
COLUMNS = (
    *("environment", "tasks>", "tools>", "system>", "tool lines>", "task>", "total>"),
    *("too long>", "hash"),
)


class PreviewFailed(HillclimbError):
    """A preview ended without prompts."""


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--env", type=ENV_REFERENCE, help="Only this environment.")
@click.option("--task", help="Print the prompt of this task in full.")
@click.option("--show", is_flag=True, help="Print every prompt that the run stored in full.")
@command
def prompts(*, run_id: str, env: str | None, task: str | None, show: bool, as_json: bool) -> None:
    """Show the prompts of RUN: tokens per environment, hashes, and full texts."""
    with connect() as client:
        report = client.prompts(run_id, env=env, task=task)
    if as_json:
        print_json(report)
        return
    if task and not report.texts:
        raise PreviewFailed(
            f"{run_id} did not store the prompt of {task!r}: hillclimb preview SPEC --task {task}"
        )
    print_prompts(report, env=env, with_texts=show or task is not None)


@main.command()
@SPEC
@SET
@click.option("--env", type=ENV_REFERENCE, help="Only this environment.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="KEY",
    help="Print the prompt of this task; repeatable.",
)
@click.option("--tasks-per-env", default=1, show_default=True, type=click.IntRange(0, 100),
              help="Prompts to print of each environment.")  # fmt: skip
@click.option(
    "--wait",
    "wait_s",
    type=FiniteRange(min=0),
    default=300.0,
    show_default=True,
    help="Longest time without progress (seconds).",
)
@command
def preview(
    *, spec_file: Path, assignments: tuple[str, ...], wait_s: float, as_json: bool, **options: Any
) -> None:
    """Print the prompts of a run of SPEC, with their token counts.

    Nothing is trained: a runner with a free slot renders and counts the prompts.
    """
    env, tasks = options["env"], options["tasks"]
    spec = preview_spec(read_spec(spec_file, assignments), tasks, options["tasks_per_env"])
    with connect() as client:
        if env is not None:
            require_env(env, client.plan(spec).spec["data"]["env_keys"], str(spec_file))
        run = client.submit(spec)
        _await_end(client, run.id, wait_s)
        report = client.prompts(run.id, env=env)
    if as_json:
        print_json(report)
        return
    print_prompts(report, env=env, with_texts=True, only=frozenset(tasks))
    too_long = sum(each.num_too_long for each in report.environments.values())
    sys.exit(Exit.ERROR if too_long else Exit.OK)


def preview_spec(spec: Mapping[str, Any], tasks: tuple[str, ...], per_env: int) -> dict[str, Any]:
    """Return the spec of a preview of a run: the same tasks, tools and tokenizer."""
    section = {"tasks_per_env": 0 if tasks else per_env, "task_keys": list(tasks)}
    return {**spec, "kind": "preview", "preview": section}


def _await_end(client: Client, run_id: str, wait_s: float) -> None:
    """Wait for the end of a preview as long as it makes progress.

    Raises:
        PreviewFailed: it did not succeed, or it is paused or made no progress for `wait_s` (then it
            is cancelled).
    """
    run, printed = client.run(run_id), ""
    last_seq, deadline = run.last_seq, time.monotonic() + wait_s
    while run.status not in ENDED:
        printed = _print_state(run, printed)
        if run.last_seq > last_seq:
            last_seq, deadline = run.last_seq, time.monotonic() + wait_s
        if time.monotonic() > deadline:
            client.cancel(run_id)
            why = (run.queue and run.queue.reason) or f"it is {run.status}"
            raise PreviewFailed(f"{run_id} made no progress for {wait_s:g} s: {why}")
        time.sleep(POLL_S)
        run = client.run(run_id)
    if run.status is RunStatus.PAUSED:
        client.cancel(run_id)
    if run.status is not RunStatus.SUCCEEDED:
        message = run.end_reason.message if run.end_reason is not None else None
        raise PreviewFailed(f"{run_id} {run.status}: {message}")


def _print_state(run: RunPayload, printed: str) -> str:
    """Print on standard error what a preview waits for, once per change; return it."""
    waits = "" if run.queue is None else f": {run.queue.reason or 'it is next'}"
    state = f"{run.status}{waits}"
    if state != printed:
        err.print(state, style="dim", markup=False, soft_wrap=True)
    return state


def print_prompts(
    report: PromptsPayload, *, env: str | None, with_texts: bool, only: frozenset[str] = frozenset()
) -> None:
    """Print a line per environment, then full prompts exactly as the model reads them."""
    rows = [
        _row(env_key, each)
        for env_key, each in sorted(report.environments.items())
        if env in (None, env_key)
    ]
    print_table(table(COLUMNS, rows))
    limit = report.max_input_length
    out.print(
        f"tokens: median (maximum); wording version {report.version}; rollout.max_input_length"
        f" {limit}",
        style="dim",
    )
    for text in report.texts if with_texts else ():
        if not only or text.task_key in only:
            _print_text(text, limit)


def _row(env_key: str, each: EnvPromptsPayload) -> tuple[object, ...]:
    of_counted = "" if each.num_counted == each.num_tasks else f" of {each.num_counted}"
    too_long = each.num_too_long
    return (
        env_key,
        each.num_tasks,
        each.num_tools,
        _spread(each.system_tokens),
        _spread(each.tools_tokens),
        _spread(each.task_tokens),
        _spread(each.total_tokens),
        f"[red]{too_long}{of_counted}[/red]" if too_long else f"0{of_counted}",
        each.digest[:12],
    )


def _spread(tokens: TokenSpreadPayload) -> str:
    is_single = tokens.min == tokens.max
    return f"{tokens.median:g}" if is_single else f"{tokens.median:g} ({tokens.max})"


def _print_text(text: PromptTextPayload, limit: int) -> None:
    excess = f", {text.total_tokens - limit} beyond the limit" if text.is_too_long else ""
    print_text(
        f"\n{text.task_key}: {text.total_tokens} tokens (system {text.system_tokens},"
        f" tools {text.tools_tokens}, task {text.task_tokens}){excess}",
        style="bold red" if excess else "bold",
    )
    print_page(text.text)
