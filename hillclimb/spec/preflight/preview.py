"""The section `preview`: what a run of kind `preview` shows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.contract.section import Section


class PreviewSpec(Section):
    """Which prompts are kept in full; the tokens of all tasks are counted."""

    tasks_per_env: Annotated[int, Field(ge=0, le=100)] = 1
    """Tasks of each environment, the first by key (count)."""
    task_keys: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], Field(max_length=100)
    ] = ()
    """These tasks, besides; a key that no task has fails the run."""
