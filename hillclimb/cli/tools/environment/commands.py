"""`env init` and `env check`: begin with an environment of one's own, and check a running one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hillclimb.cli.main import command
from hillclimb.cli.terminal.console import print_json, print_text
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.tools.data_plane import as_flags, become
from hillclimb.cli.tools.environment.first_files import first_files
from hillclimb.cli.tools.environment.headers import hand_over, read_headers
from hillclimb.cli.tools.session import environment
from hillclimb.client.errors import SpecFileError

MODULE = "trainer.envs.openenv.check"
DEFAULT = Path("post-office")


@environment.command()
@click.argument(
    "directory",
    metavar="[DIR]",
    default=DEFAULT,
    type=click.Path(path_type=Path, file_okay=False),
)
@click.option("--force", is_flag=True, help="Overwrite files of these names in DIR.")
@command
def init(*, directory: Path, force: bool, as_json: bool) -> None:
    """Write a working environment, its tasks, demonstrations and specs to DIR (post-office)."""
    files = first_files()
    present = [name for name in files if (directory / name).exists()]
    if present and not force:
        raise SpecFileError(
            f"{directory / present[0]} is there: name another directory, or --force to overwrite it"
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    if as_json:
        print_json({"directory": str(directory), "files": sorted(files)})
        return
    print_text(f"{directory}: {', '.join(sorted(files))}")
    print_text(
        f"serve it, with any Python that has openenv-core and uvicorn: {_serving(directory)}"
    )
    print_text("then: hillclimb env check http://127.0.0.1:8765 --tasks FILE")


def _serving(directory: Path) -> str:
    options = f"--app-dir {directory} --port 8765 --ws-ping-timeout 600"
    return f"python -m uvicorn {options} environment:app"


@environment.command()
@click.argument("url", metavar="URL")
@click.option(
    "--tasks",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of tasks (JSON lines), whose metadata.reset the resets get.",
)
@click.option("--reset", metavar="JSON", help="Arguments of every reset, such as '{\"level\": 2}'.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Header of every request, such as 'Authorization:Bearer KEY'; repeatable. The shell may"
    " store it in its history.",
)
@click.option(
    "--header-from",
    "headers_from",
    multiple=True,
    metavar="NAME:VARIABLE",
    help="The same with the value of a variable of the environment; repeatable.",
)
@click.option("--reward", type=click.Choice(["last", "sum"]), help="As in the spec.")
@click.option(
    "--reward-range",
    nargs=2,
    type=FiniteRange(-1e9, 1e9),
    metavar="LOW HIGH",
    help="As in the spec: 0 1.",
)
@click.option(
    "--episodes",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="Episodes of random calls.",
)
@click.option(
    "--max-turns",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="Calls of an episode.",
)
@click.option(
    "--deadline",
    type=FiniteRange(0.1, 3600),
    default=30.0,
    show_default=True,
    help="Longest wait for a reset or a step (seconds).",
)
@command
def check(
    *,
    url: str,
    headers: tuple[str, ...],
    headers_from: tuple[str, ...],
    reward_range: tuple[float, float] | None,
    as_json: bool,
    **options: object,
) -> None:
    """Play a few episodes on the OpenEnv server at URL and say what is right and what is wrong.

    Exit codes: 0 nothing is wrong, 1 something is, 2 usage, 5 no answer.
    """
    sent, variables = hand_over(dict(read_headers(headers, headers_from, os.environ)))
    words = as_flags(options) + sent
    if reward_range is not None:
        words += ["--reward-range", *map(str, reward_range)]
    become(MODULE, [*words, *(["--json"] if as_json else []), "--", url], os.environ | variables)
