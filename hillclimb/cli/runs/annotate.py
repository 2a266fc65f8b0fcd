"""`annotate`: tags, links and a note on a run."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.runs import RunPayload


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--tag", "add_tags", multiple=True, metavar="TAG", help="Add a tag; repeatable.")
@click.option(
    "--untag", "remove_tags", multiple=True, metavar="TAG", help="Remove a tag; repeatable."
)
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="LABEL=URL",
    help="Add a link, as in pr=https://…; an empty URL removes it.",
)
@click.option("--note", metavar="TEXT", help="Replace the note; an empty one removes it.")
@command
def annotate(
    *,
    run_id: str,
    add_tags: tuple[str, ...],
    remove_tags: tuple[str, ...],
    links: tuple[str, ...],
    note: str | None,
    as_json: bool,
) -> None:
    """Change the tags, links and note of RUN, and print them."""
    addresses = dict(map(_link, links))
    with connect() as client:
        run = client.annotate(
            run_id, add_tags=add_tags, remove_tags=remove_tags, links=addresses, note=note
        )
    if as_json:
        print_json(run)
    else:
        print_annotations(run)


def print_annotations(run: RunPayload) -> None:
    """Print a run's tags, links and note, as far as it has any."""
    if run.tags:
        print_text(f"tags {', '.join(run.tags)}")
    for label, url in run.links.items():
        print_text(f"{label} {url}")
    if run.note:
        print_text(run.note)


def _link(text: str) -> tuple[str, str | None]:
    label, separator, url = text.partition("=")
    if not separator or not label:
        raise click.BadParameter(f"{text!r}: write LABEL=URL, as in pr=https://…")
    return label, url or None
