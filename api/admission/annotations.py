"""Tags, links and notes: what people write about a run or a dataset version."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator
from sqlalchemy.orm import Session

from api.datasets import store as dataset_store
from api.runs import store
from api.runs.errors import TooManyAnnotations
from api.tables import Dataset, DatasetVersion, Run
from hillclimb.spec.section import MAX_TAGS, Section, Tag

MAX_LINKS = 16
MAX_NOTE = 20_000
"""Characters of a note."""
_Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$")]
_Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@]+(/\S*)?$", max_length=2048)]
_Note = Annotated[str, StringConstraints(max_length=MAX_NOTE)]


class RunAnnotation(Section):
    """Changes of a run's tags, links and note; what is left out stays."""

    add_tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)] = ()
    """Tags to add."""
    remove_tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)] = ()
    """Tags to remove; one that the run does not have changes nothing."""
    links: Annotated[dict[_Label, _Address | None], Field(max_length=MAX_LINKS)] = Field(
        default_factory=dict
    )
    """Addresses by label, such as `pr` or `wandb`; null removes one."""
    note: _Note | None = None
    """The new note; an empty one removes it."""

    @model_validator(mode="after")
    def _no_tag_is_in_both(self) -> Self:
        both = sorted(set(self.add_tags) & set(self.remove_tags))
        if both:
            raise ValueError(
                f"{both[0]!r} is in add_tags and in remove_tags: leave it in one of them"
            )
        return self


class VersionAnnotation(Section):
    """The new note of a dataset version."""

    note: _Note
    """The text; an empty one removes the note."""


def annotate_run(session: Session, project_id: str, run_id: str, changes: RunAnnotation) -> Run:
    """Change the tags, links and note of a run, also of one that has ended.

    Raises:
        RunNotFound: the project has no such run.
        TooManyAnnotations: it would have more tags or links than a run may have.
    """
    run = store.lock_run(session, run_id, project_id=project_id)
    tags = sorted(set(run.tags) - set(changes.remove_tags) | set(changes.add_tags))
    links = {key: url for key, url in (run.links | changes.links).items() if url is not None}
    for what, number, most in (("tags", len(tags), MAX_TAGS), ("links", len(links), MAX_LINKS)):
        if number > most:
            raise TooManyAnnotations(
                f"Run {run.id} would have {number} {what}, and a run has at most {most}: remove"
                " some in the same request."
            )
    run.tags, run.links = tags, links
    if changes.note is not None:
        run.note = changes.note or None
    return run


def annotate_version(
    session: Session, project_id: str, name: str, number: int | None, changes: VersionAnnotation
) -> tuple[Dataset, DatasetVersion]:
    """Replace the note of a version; null is the newest one. Raises DatasetNotFound."""
    dataset, version = dataset_store.find_version(session, project_id, name, number)
    version.note = changes.note or None
    return dataset, version
