"""Numbers of the command line: click takes `nan` and `inf`, and JSON has neither."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """click's range of floats, without `nan` (which no bound refuses) and without infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; a usage error where it is none."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number that can be used.", param, ctx)
        return found
