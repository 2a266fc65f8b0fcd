"""The request for a new version of a dataset."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from api.datasets.errors import DatasetRejected
from hillclimb.datasets.filter.exclusions import MAX_AT_ONCE, Exclusion
from hillclimb.datasets.filter.filters import FilterOptions
from hillclimb.datasets.format.rows import Storable
from hillclimb.datasets.lint.lint import LintOptions
from hillclimb.datasets.prepare import PrepareOptions
from hillclimb.datasets.split.policies import Md5ThresholdPolicy, PublishedPolicy, RankPolicy
from hillclimb.datasets.split.published import read_published
from hillclimb.protocol.spec_problems import SpecProblem, sentence_of

VERSION = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}@[1-9][0-9]{0,6}"
"""`NAME@3`."""


def _checked_version(name: str) -> str:
    if not re.fullmatch(VERSION, name):
        raise ValueError(f"{name!r} is not a version: write NAME@3, with its number")
    return name


VersionName = Annotated[str, AfterValidator(_checked_version)]


POLICIES: Mapping[str, type[BaseModel]] = {
    "rank": RankPolicy,
    "md5_threshold": Md5ThresholdPolicy,
    "published": PublishedPolicy,
}
SECTIONS: Mapping[str, type[BaseModel]] = {"filters": FilterOptions, "lint": LintOptions}


class VersionRequest(PrepareOptions):
    """Options of a new version; omitted ones take their default."""

    source: Annotated[Storable, Field(min_length=1, max_length=2048)] | None = None
    """Source of the tasks if the request has no file: an address that the operator allows, or
    `NAME@3` for the tasks of another version."""
    exclusions: Annotated[tuple[Exclusion, ...], Field(max_length=MAX_AT_ONCE)] = ()
    """Added to the exclusions of the dataset, as by `POST …/exclusions`."""
    parent: VersionName | None = None
    """A version, of any dataset of the project, whose eval tasks never become training tasks here;
    the dataset's own earlier versions always count."""

    @field_validator("split", mode="before")
    @classmethod
    def _published_splits_come_in_every_form(cls, split: object) -> object:
        """Accept the forms of the command line: by key, by split, or as rows."""
        if isinstance(split, dict) and split.get("policy") == "published" and "splits" in split:
            return {**split, "splits": read_published(split["splits"]).splits}
        return split

    @model_validator(mode="after")
    def _source_is_an_address_or_a_version(self) -> Self:
        source = self.source
        if source is not None and "://" not in source and not re.fullmatch(VERSION, source):
            raise ValueError(
                f"source {source!r} is neither an address such as s3://BUCKET/PATH nor a version"
                " such as NAME@3"
            )
        return self

    def prepare_options(self) -> dict[str, Any]:
        """Return the options for preparing the tasks, as JSON."""
        return self.model_dump(mode="json", include=set(PrepareOptions.model_fields))

    def stored(self) -> dict[str, Any]:
        """Return the options to store with the version; a published split as its hash."""
        options = self.model_dump(mode="json", exclude={"exclusions"})
        if isinstance(self.split, PublishedPolicy):
            canonical = json.dumps(self.split.splits, sort_keys=True).encode()
            options["split"] = {
                **self.split.model_dump(mode="json", exclude={"splits"}),
                "num_tasks": len(self.split.splits),
                "sha256": hashlib.sha256(canonical).hexdigest(),
            }
        return options


def parse_request(body: bytes) -> VersionRequest:
    """Return the options in a JSON document; an empty one means the defaults.

    Raises:
        DatasetRejected: one entry per mistake.
    """
    try:
        return VersionRequest.model_validate_json(body or b"{}")
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[:50]
        problems = [_problem(tuple(detail["loc"]), detail) for detail in details]
        sentences = "; ".join(f"{problem.pointer}: {problem.message}" for problem in problems[:3])
        raise DatasetRejected(sentences, problems) from error


def _problem(loc: tuple[int | str, ...], detail: Mapping[str, Any]) -> SpecProblem:
    """Return a mistake with its JSON pointer, which omits the policy's name."""
    model: type[BaseModel] = VersionRequest
    path: list[str] = []
    for part in loc:
        if part in POLICIES:
            model = POLICIES[str(part)]
        else:
            path.append(str(part))
            model = SECTIONS.get(str(part), model)
    message = sentence_of(detail)
    if detail["type"] == "extra_forbidden":
        close = difflib.get_close_matches(path[-1], model.model_fields, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        message = f"unknown key {path[-1]!r}{hint}"
    pointer = "".join(f"/{part}" for part in ("options", *path))
    return SpecProblem(pointer=pointer, code=str(detail["type"]), message=message)
