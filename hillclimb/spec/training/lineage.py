"""The section `lineage`: the checkpoint that a run starts from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hillclimb.spec.section import Section


class ResumedFrom(Section):
    """The checkpoint that a run resumes from."""

    run_id: Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}$")]
    """The run that wrote the checkpoint."""
    step: Annotated[int, Field(ge=0)]
    """Global step of the checkpoint."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that wrote the checkpoint."""


class LineageSpec(Section):
    """The checkpoint that the run starts from."""

    resumed_from: ResumedFrom | None = None
    """Set by `resume`: weights, optimizer, data order and random state of that checkpoint. In a run
    of kind `eval` or `probe`: the checkpoint whose policy is evaluated or probed."""
