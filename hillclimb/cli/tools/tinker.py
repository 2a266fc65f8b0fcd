"""`tinker`: a local server of the Tinker protocol."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hillclimb.cli.main import command, main
from hillclimb.cli.stack.lifecycle import read_options
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.tools.data_plane import as_flags, become

MODULE = "trainer.tinker_server"
API_KEY_VARIABLE = "TINKER_API_KEY"


@main.group()
def tinker() -> None:
    """Run a local server of the Tinker protocol."""


@tinker.command()
@click.option(
    "--model",
    default="builtin:tiny-qwen3-a",
    show_default=True,
    help="Qwen3 to serve, as `model.source` of a spec.",
)
@click.option(
    "--name", help="Model name for clients. Default: ORG/NAME of a hub model, else as --model."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of persistent state. Default: `tinker` in the stack's state directory.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free one.")
@click.option(
    "--api-key",
    help="Key clients send; with commas between, several, each an account that sees nothing of the"
    " others. Default: TINKER_API_KEY, else `tml-local`.",
)
@click.option(
    "--max-models",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Limit of concurrently trained adapters; each has a copy of the model.",
)
@click.option(
    "--max-rank",
    type=click.IntRange(1, 512),
    default=64,
    show_default=True,
    help="Limit of an adapter's rank.",
)
@click.option(
    "--max-samples",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    help="Limit of concurrent samples; others wait.",
)
@click.option(
    "--max-context",
    type=click.IntRange(16),
    help="Longest sequence in tokens. Default: the model's positions.",
)
@click.option(
    "--session-timeout",
    type=FiniteRange(1),
    default=300.0,
    show_default=True,
    help="Seconds of silence after which a client loses its adapters.",
)
@command
def serve(
    *,
    state_dir: Path | None,
    api_key: str | None,
    as_json: bool,
    **options: str | float | None,
) -> None:
    """Serve one Qwen3 with the protocol of Tinker's SDK 0.24.1 until Ctrl-C.

    Set TINKER_BASE_URL to its address. Saved weights persist across restarts; unsaved training
    does not.
    """
    place = state_dir or read_options().state_dir / "tinker"
    arguments = ["--state-dir", str(place), *as_flags(options), *(["--json"] if as_json else [])]
    environment = dict(os.environ) | ({API_KEY_VARIABLE: api_key} if api_key else {})
    become(MODULE, arguments, environment)
