"""`migrate`: a file of another trainer as a run spec."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import yaml

from hillclimb.cli.main import command, main
from hillclimb.cli.terminal.console import err, print_json
from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.imports.migration.migrate import Migrated
from hillclimb.client.imports.migration.migrate import migrate as migrate_file


@main.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--local",
    "is_local",
    is_flag=True,
    help="Size it for this machine: the built-in model on the miniature apps, to try it first.",
)
@command
def migrate(*, file: Path, is_local: bool, as_json: bool) -> None:
    """Print the run spec for FILE of another trainer; what has no place goes to standard error.

    FILE is a GitHub workflow's inputs or its own file, a task or configuration of SkyRL, a TOML
    file of prime-rl or verifiers, or a reinforcement fine-tuning job or grader of OpenAI. Exit code
    6 if the service would refuse the spec as it is.
    """
    migrated = migrate_file(file, is_local=is_local)
    if as_json:
        parts = {"format": migrated.format, "spec": migrated.spec}
        print_json(parts | {"remarks": migrated.remarks, "problems": migrated.problems})
    else:
        _print(migrated, file)
    sys.exit(Exit.REFUSED if migrated.problems else Exit.OK)


def _print(migrated: Migrated, file: Path) -> None:
    sys.stdout.write(f"# Migrated from {file.name} ({migrated.format}) by hillclimb migrate.\n")
    sys.stdout.write(yaml.safe_dump(migrated.spec, sort_keys=False, allow_unicode=True))
    for remark in migrated.remarks:
        err.print(remark, markup=False, soft_wrap=True, highlight=False)
    for problem in migrated.problems:
        line = f"the service would refuse {problem}"
        err.print(line, style="yellow", markup=False, soft_wrap=True)
