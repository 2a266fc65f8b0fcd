"""`import`: bring in the results of past runs, as runs that ended."""

from __future__ import annotations

import re
from typing import Any

import click

from hillclimb.cli.finite import FiniteRange
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.imported import print_imported
from hillclimb.cli.runs.results.scoring import THRESHOLD
from hillclimb.client.imports.dump import packed

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
