"""Commands that the data plane's interpreter carries out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hillclimb.cli.stack import read_options
from hillclimb.errors import HillclimbError


class DataPlaneMissing(HillclimbError):
    """There is no interpreter of the data plane."""


def find_python() -> Path:
    """Return the data plane's interpreter.

    Raises DataPlaneMissing.
    """
    python = read_options().find_trainer_python()
    if not python.exists():
        raise DataPlaneMissing(f"no data plane at {python}: run `make setup`")
    return python


def become(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Go on as a module of the data plane: what stops this command stops that.

    Raises DataPlaneMissing.
    """
    python = str(find_python())
    sys.stdout.flush()
    os.execve(python, [python, "-m", module, *arguments], dict(environment))  # noqa: S606


def as_flags(options: Mapping[str, object]) -> list[str]:
    """Return options as the words of a command line; those that are None or False are left out."""
    words = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
