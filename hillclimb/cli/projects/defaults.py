"""`project defaults`: what submitted specs get where they leave a key out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import out, print_json, print_text
from hillclimb.client.errors import SpecFileError
from hillclimb.client.spec_file import read_spec, with_assignments


@main.group()
def project() -> None:
    """Show and change settings of the project."""


@project.command()
@click.option(
    "--file",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replace all defaults by those of a YAML or JSON file.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one key, such as slack_channel='#training' or wandb.mode=online; null: none.",
)
@click.option("--clear", is_flag=True, help="Remove all defaults.")
@command
def defaults(
    *, source: Path | None, assignments: tuple[str, ...], clear: bool, as_json: bool
) -> None:
    """Show the defaults of the project's specs, or change them (keys: docs/secrets.md)."""
    if clear and (source or assignments):
        raise click.UsageError("--clear removes all defaults: leave --file and --set out")
    with connect() as client:
        current = client.defaults.get()
        if source or assignments or clear:
            before: dict[str, Any] = {} if clear else current.defaults
            try:
                changed = read_spec(source) if source else before
                changed = with_assignments(changed, tuple(map(_quoted, assignments)))
            except SpecFileError as error:
                raise click.UsageError(str(error)) from error
            current = client.defaults.replace(changed)
    if as_json:
        print_json(current)
        return
    document = _without_empty(current.defaults)
    if document:
        out.print(yaml.safe_dump(document, sort_keys=False).rstrip(), markup=False, highlight=False)
        print_text(f"set by {current.updated_by}; `hillclimb plan` shows what a spec gets")
    else:
        print_text("The project has no defaults: --set KEY=VALUE sets one (docs/secrets.md).")
    for key, value in current.operator.items():
        print_text(f"after these, the operator's: {key} {value}")


def _quoted(assignment: str) -> str:
    """Return the assignment with quotes around a channel, which YAML would read as a comment."""
    key, separator, value = assignment.partition("=")
    return f'{key}="{value}"' if separator and value.startswith("#") else assignment


def _without_empty(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a section that set something."""
    parts = {
        key: _without_empty(value) if isinstance(value, Mapping) else value
        for key, value in section.items()
    }
    return {key: value for key, value in parts.items() if value not in (None, {}, [])}
