"""`init`: write a commented spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.client.errors import SpecFileError

TEMPLATE = Path(__file__).with_name("first_spec.yaml")
DEFAULT = Path("hillclimb.yaml")


@main.command("init")
@click.argument(
    "file", metavar="[FILE]", default=DEFAULT, type=click.Path(path_type=Path, dir_okay=False)
)
@click.option("--preset", metavar="NAME", help="Start from this preset (hillclimb presets).")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@command
def write_first_spec(*, file: Path, preset: str | None, force: bool, as_json: bool) -> None:
    """Write a commented spec to FILE, by default hillclimb.yaml."""
    if file.exists() and not force:
        raise SpecFileError(f"{file} is there: name another file, or --force to overwrite it")
    if preset is None:
        text = TEMPLATE.read_text()
    else:
        with connect() as client:
            text = client.preset(preset).text
    file.write_text(text)
    if as_json:
        print_json({"file": str(file)})
    else:
        print_text(f"{file}: edit it, then hillclimb plan {file}, hillclimb submit {file} --watch")
