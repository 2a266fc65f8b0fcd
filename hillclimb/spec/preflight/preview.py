"""The section `preview`: prompts stored by a run of kind `preview`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hillclimb.spec.section import Section


class PreviewSpec(Section):
    """Prompts that are stored in full; the tokens of all tasks are counted."""

    tasks_per_env: Annotated[int, Field(ge=0, le=100)] = 1
    """Tasks per environment whose prompts are stored, first by key (count)."""
    task_keys: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], Field(max_length=100)
    ] = ()
    """Keys of further tasks whose prompts are stored; an unknown key fails the run."""
