"""`import`: bring in the results of past runs, as runs that ended."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.imported import print_imported
from hillclimb.cli.runs.results.scoring import THRESHOLD
from hillclimb.cli.terminal.console import err
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.client.errors import ImportSourceError
from hillclimb.client.imports.dump import packed
from hillclimb.client.imports.history import packed as packed_history
from hillclimb.client.imports.wandb_api import ADDRESS, WandbRun
from hillclimb.client.imports.wandb_file import read_offline_run
from hillclimb.spec.rules.required_secrets import WANDB_KEY

PARTS_OF_RUN = 3
"""Entity, project and id of a run on a W&B server."""
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
NAME = click.option("--name", metavar="NAME", help="Name of the run; default: the source's.")


@main.group("import")
def imports() -> None:
    """Bring in the results of past runs, as runs that ended.

    Importing the same again returns the run of the first import.
    """


@imports.command("skyrl")
@click.argument("source", metavar="DIR|S3_ADDRESS")
@NAME
@click.option("--step", "steps", type=click.IntRange(min=0), multiple=True, help="Only these.")
@click.option("--decoding", metavar="NAME", help="Default: greedy, SkyRL's default.")
@click.option("--temperature", type=FiniteRange(min=0, max=5), help="Default: 0, SkyRL's default.")
@click.option(
    "--threshold",
    "pass_threshold",
    type=THRESHOLD,
    metavar="SCORE",
    help="A rollout passes from this score on; default: 1.",
)
@click.option("--total-steps", type=click.IntRange(min=1), help="Last step that was planned.")
@click.option("--model", metavar="NAME", help="Name of the model that it trained.")
@command
def skyrl(
    *, source: str, name: str | None, steps: tuple[int, ...], as_json: bool, **options: Any
) -> None:
    """Import the dumps of a SkyRL run: global_step_N/ENV.jsonl and aggregated_results.jsonl.

    SOURCE is the folder of the run, on this machine or as s3://BUCKET/evals/RUN, which is read with
    the credentials of your environment.
    """
    with packed(source, steps=frozenset(steps)) as dump, connect() as client:
        run = client.imports.skyrl(dump.path, source=as_name(name or dump.name), **options)
        print_imported(client, run, as_json=as_json)


def as_name(text: str) -> str:
    """Return a text as the name of an imported run."""
    return NOT_IN_NAMES.sub("_", text).lstrip("._-")[:120] or "imported"


@imports.command("wandb")
@click.argument("source", metavar="FILE|ENTITY/PROJECT/RUN")
@NAME
@click.option("--decoding", metavar="NAME", help="Of the metrics eval/...; default: greedy.")
@click.option("--temperature", type=FiniteRange(min=0, max=5), help="Default: 0, SkyRL's default.")
@click.option("--model", metavar="NAME", help="Name of the model that it trained.")
@click.option("--base-url", metavar="URL", envvar="WANDB_BASE_URL", default=ADDRESS,
              show_default=True, help="Address of the W&B server.")  # fmt: skip
@command
def wandb(*, source: str, name: str | None, base_url: str, as_json: bool, **options: Any) -> None:
    """Import the history of a W&B run: metrics alone, as there are no outcomes in it.

    SOURCE is an offline file (run-ID.wandb, or the folder with it), or a run on a W&B server, which
    is read with WANDB_API_KEY.
    """
    with (
        _history(source, base_url) as (title, rows),
        packed_history(rows) as history,
        connect() as client,
    ):
        run = client.imports.wandb(history.path, source=as_name(name or title), **options)
        print_imported(client, run, as_json=as_json)


@contextmanager
def _history(source: str, address: str) -> Iterator[tuple[str, Iterable[Mapping[str, object]]]]:
    """Yield name and rows of a run, from a file or from a server."""
    path, parts = Path(source), source.split("/")
    if path.exists() or len(parts) != PARTS_OF_RUN:
        offline = read_offline_run(path)
        if offline.is_cut_off:
            err.print("the end of the file is cut off: what comes before is imported")
        yield offline.name, offline.rows
        return
    key = os.environ.get(WANDB_KEY)
    if not key:
        raise ImportSourceError(f"{WANDB_KEY} is not set: a W&B server gives rows to a key alone")
    entity, project, run_id = parts
    with WandbRun(entity, project, run_id, key, address) as run:
        title, last_step = run.name_and_last_step()
        yield title, run.rows(last_step=last_step)
