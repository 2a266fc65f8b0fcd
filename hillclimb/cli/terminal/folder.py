"""Arguments that take a directory to write to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class Folder(click.Path):
    """A directory; an empty text, as of a variable that is not set, is not the working one."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path.

        Raises:
            click.BadParameter: the text is empty, or names a file.
        """
        if not str(value):
            self.fail("it is empty: write . for the working directory", param, ctx)
        return Path(str(super().convert(value, param, ctx)))
