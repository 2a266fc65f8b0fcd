"""The section `lineage`: the checkpoint that a run starts from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Section


class ResumedFrom(Section):
    """The checkpoint that a run resumes from."""

    run_id: Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}$")]
    """The run that wrote the checkpoint."""
    step: Annotated[int, Field(ge=0)]
    """Global step of the checkpoint."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that wrote the checkpoint."""


class ForkedFrom(Section):
    """The run that a run was forked from."""

    run_id: Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}$")]
    """The run whose resolved spec was changed."""
    step: Annotated[int, Field(ge=0)] | None = None
    """Global step of the checkpoint that the fork continues from; null: it starts as the other run
    did."""


class LineageSpec(Section):
    """The checkpoint that the run starts from, and the run that its spec comes from."""

    resumed_from: ResumedFrom | None = None
    """Set by `resume`: weights, optimizer, data order and random state of that checkpoint. In a run
    of kind `eval` or `probe`: the checkpoint whose policy is evaluated or probed."""
    data_order: Literal["continue", "restart"] = "continue"
    """`continue` draws the tasks that the checkpoint's run would have drawn next, and requires its
    tasks and sampling. `restart` takes weights, optimizer and step from the checkpoint and draws
    this spec's tasks from their beginning: more data, another batch size, another seed."""
    forked_from: ForkedFrom | None = None
    """Set by `fork`: the parent of this run, which `hillclimb show` names."""

    @model_validator(mode="after")
    def _an_order_restarts_after_a_checkpoint(self) -> Self:
        if self.data_order == "restart" and self.resumed_from is None:
            raise ValueError(
                "data_order restart does nothing without resumed_from: name a checkpoint there, or"
                " leave data_order out"
            )
        return self
