"""The section `checkpoints`: interval and retention of checkpoints."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hillclimb.spec.section import Section


class CheckpointSpec(Section):
    """Interval and retention of checkpoints; the last step is always saved."""

    interval: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Save every so many steps."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of newest checkpoints to keep; older ones are deleted once a newer one is complete,
    even if another run that will evaluate them or resume from them has not read them yet. The
    newest one that is qualified is kept besides."""
    qualify: bool = True
    """Load each checkpoint in a fresh process and take one update there, on the CPU: only one that
    passes is a point of recovery."""
