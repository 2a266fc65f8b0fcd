"""Options of commands that print the rows of a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def limit_option(default: int, *, most: int = 200) -> Callable[[F], F]:
    """Return the option `--limit`: rows at most, up to those of one page of the API."""
    return click.option(
        "--limit",
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        help="Most rows to print.",
    )
