"""The root command: shared options, and errors turned into a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from io import TextIOWrapper
from typing import ParamSpec

import click

from hillclimb.blobs.archive.zip_file import ArchiveRefused
from hillclimb.cli.terminal.console import print_error
from hillclimb.cli.terminal.exits import Exit, exit_for
from hillclimb.cli.terminal.lazy_group import LazyGroup
from hillclimb.cli.terminal.run_reference import resolve_runs
from hillclimb.client.client import Client
from hillclimb.client.connection import find_connection
from hillclimb.client.errors import HillclimbError, LocalFileError

P = ParamSpec("P")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hillclimb")
def main() -> None:
    """Train tool-use agents: submit a spec, watch pass@1, read the verdict.

    To begin: `hillclimb up --detach`, then `init`, `submit hillclimb.yaml --watch`, `show @last`.
    A RUN is an id, the beginning of one, a name that only one run has, or @last; a SPEC is a file.

    Exit codes: 0 done, 1 error, 2 usage, 3 run failed, 4 run cancelled, 5 service unreachable,
    6 refused, 7 not found, 8 run paused, 9 nothing learned, 130 interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark, not a stack trace.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command with `--json` (parameter `as_json`) and exit codes for client errors."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            resolve_runs(kwargs, connect)
            function(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.exit(Exit.INTERRUPTED)
        except (HillclimbError, ArchiveRefused) as error:
            print_error(error, as_json=bool(kwargs.get("as_json")))
            sys.exit(exit_for(error))
        except BrokenPipeError:
            _discard_output()
            sys.exit(Exit.ERROR)
        except OSError as error:
            _discard_output()
            print_error(LocalFileError(error), as_json=bool(kwargs.get("as_json")))
            sys.exit(Exit.ERROR)

    return wrapped


def _discard_output() -> None:
    """Discard what standard output still buffers, if it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())


def connect() -> Client:
    """Return a client of the service that the environment or the state directory names."""
    return Client(find_connection())
