"""Runs commands in the data plane's Python interpreter."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hillclimb.cli.stack.lifecycle import read_options
from hillclimb.client.errors import HillclimbError


class DataPlaneMissing(HillclimbError):
    """The data plane's interpreter does not exist."""


def find_python() -> Path:
    """Return the data plane's interpreter.

    Raises DataPlaneMissing.
    """
    python = read_options().find_trainer_python()
    if not python.exists():
        raise DataPlaneMissing(f"no data plane at {python}: run `make setup`")
    return python


def become(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a module of the data plane, so that signals reach it.

    Raises DataPlaneMissing.
    """
    python = str(find_python())
    sys.stdout.flush()
    os.execve(python, [python, "-m", module, *arguments], dict(environment))  # noqa: S606


def as_flags(options: Mapping[str, object]) -> list[str]:
    """Return options as command-line arguments; None and False are left out."""
    words = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words
