"""The section `sft`: what a run of kind `sft` imitates."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hillclimb.spec.hosts import S3, refuse_settings_in
from hillclimb.spec.section import Section, Share


class SftSpec(Section):
    """Demonstrations of a warm start; other kinds ignore it."""

    demonstrations: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """File of demonstrations, JSON lines of `messages` (docs/own-environment.md): an absolute path
    that the runner's machine can read, or `s3://BUCKET/KEY`. The service accepts those below a
    prefix that its operator allows (docs/secrets.md). The command line takes a relative path from
    the folder of the spec."""
    rollouts_of: Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}$")] | None = None
    """Imitate the graded training rollouts of this run instead, which must have used the same
    tokens: the same `model.source`, or one that was trained from it."""
    min_score: Share = 1.0
    """Lowest score of a rollout of `rollouts_of` that is imitated."""
    held_out_share: Annotated[float, Field(ge=0.0, le=0.5)] = 0.1
    """Share of the demonstrations that is not trained on, and whose loss is reported."""


def refuse_unclear(sft: SftSpec, *, is_sft: bool) -> None:
    """Refuse a warm start from nothing, from two sources, or from a path of unknown place.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if not is_sft:
        return
    named = [each for each in (sft.demonstrations, sft.rollouts_of) if each is not None]
    if len(named) != 1:
        raise ValueError(
            "a run of kind sft imitates one thing: set sft.demonstrations to a file, or"
            " sft.rollouts_of to a run"
        )
    file = sft.demonstrations
    if file is not None:
        refuse_settings_in("sft.demonstrations", file)
    if file is not None and not file.startswith(("/", S3)):
        raise ValueError(
            f"sft.demonstrations is {file!r}, and the service does not know in which folder: write"
            " an absolute path of the runner's machine, or s3://BUCKET/KEY"
        )
