"""Makes the spec of a capsule one that this installation can run: its dataset is found or made."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hillclimb.blobs.archive.capsule import CapsuleArchive, CapsuleRefused
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.datasets.filter.exclusions import MAX_REASON, Exclusion
from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.rows import DatasetError
from hillclimb.datasets.format.stored import read_rows, read_splits
from hillclimb.datasets.prepare import PrepareOptions, prepare
from hillclimb.protocol.payloads.datasets.versions import VersionSummary
from hillclimb.protocol.payloads.studies.capsule import (
    SPEC,
    SPLIT,
    TASKS,
    VERSION,
    CapsuleDataset,
)
from hillclimb.spec.run import RunSpec

Json = dict[str, Any]
ELSEWHERE = ("builtin:", "hf:", "s3://", "run:")
"""Beginnings of `model.source` that name no path of one machine."""


def capsule_spec(archive: CapsuleArchive) -> Json:
    """Return the spec, in the order of the sections if this version accepts it.

    The id of its dataset version is left out: it is another one on each installation.
    """
    content = archive.document(SPEC)
    if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
        raise CapsuleRefused(f"{SPEC} is no run spec")
    try:
        spec: Json = RunSpec.model_validate(content).model_dump(mode="json")
    except ValidationError:
        spec = content  # the service says what it rejects
    if isinstance(spec["data"].get("dataset"), dict):
        spec["data"]["dataset"]["id"] = None
    return spec


def find_dataset(client: Client, dataset: CapsuleDataset) -> VersionSummary | None:
    """Return the version with the same digest here: of the same dataset, the newest one first."""
    before: int | None = None
    while True:
        try:
            page = client.datasets.versions(dataset.name, limit=200, before=before)
        except ApiProblem as problem:
            if problem.code == "dataset_not_found":
                return None
            raise
        for each in page.data:
            if each.digest == dataset.digest:
                return each
        if not page.has_more:
            return None
        before = page.data[-1].number


def use_version(spec: Json, version: VersionSummary) -> None:
    """Have the spec name this version, in place."""
    spec["data"]["dataset"] = {
        "name": version.name,
        "version": version.number,
        "id": version.id,
        "digest": version.digest,
    }


def make_dataset(client: Client, archive: CapsuleArchive, name: str) -> VersionSummary:
    """Create the dataset version from the capsule's rows and return it; its digest is the same.

    Raises:
        CapsuleRefused: the capsule has no rows, the split cannot be made again from them, or the
            dataset exists here with other versions.
    """
    dataset = archive.manifest.dataset
    if dataset is None or not (archive.has(TASKS) and archive.has(SPLIT) and archive.has(VERSION)):
        raise CapsuleRefused(
            "the capsule has no rows of its dataset: export it with --tasks, or create the dataset"
            " here first"
        )
    _refuse_existing(client, name)
    with tempfile.TemporaryDirectory(prefix="hillclimb-capsule-") as folder:
        tasks, split = Path(folder, "tasks.jsonl.gz"), Path(folder, "split.jsonl.gz")
        archive.save_packed(TASKS, tasks)
        archive.save_packed(SPLIT, split)
        options = _options(archive, dataset, tasks, split)
        version = client.datasets.create(name, tasks, options)
    if version.digest != dataset.digest:
        raise CapsuleRefused(
            f"{version.name}@{version.number} was created and has the digest {version.digest}, not"
            f" the capsule's {dataset.digest}: nothing was submitted"
        )
    return version


def missing_parts(client: Client, archive: CapsuleArchive, spec: Json) -> list[str]:
    """Return a sentence for each thing that the spec needs and this installation lacks.

    A preset is never among them: a resolved spec names none.
    """
    dataset, missing = archive.manifest.dataset, []
    if dataset is not None and find_dataset(client, dataset) is None:
        how = "`hillclimb capsule fork` creates it" if archive.has(TASKS) else "export with --tasks"
        missing.append(
            f"dataset {dataset.name} has no version here with digest {dataset.digest[:12]}: {how}"
        )
    else:
        try:
            client.plan(spec)
        except ApiProblem as problem:
            missing += problem.sentences()
    source = str((spec.get("model") or {}).get("source", ""))
    if not source.startswith(ELSEWHERE):
        missing.append(f"model.source is the path {source}: the trainer's machine must have it")
    return missing


def _refuse_existing(client: Client, name: str) -> None:
    try:
        client.datasets.get(name)
    except ApiProblem as problem:
        if problem.code == "dataset_not_found":
            return
        raise
    raise CapsuleRefused(
        f"dataset {name} exists here, without a version of the capsule's digest: its versions"
        " would change the split. Name a new one with --dataset NAME"
    )


def _options(archive: CapsuleArchive, dataset: CapsuleDataset, tasks: Path, split: Path) -> Json:
    """Return the options under which the rows give the digest again; raises CapsuleRefused.

    Tries them here first: a version with another split would bind the dataset's later ones.
    """
    try:
        division = list(read_splits(split))
        exclusions = list(_exclusions(division))
        for options in _candidates(archive.document(VERSION), division):
            rows = read_rows(tasks)
            made = prepare(rows, options, now=datetime.now(UTC), exclusions=exclusions)
            if made.digest == dataset.digest:
                body: Json = options.model_dump(mode="json")
                listed = [each.model_dump(mode="json") for each in exclusions]
                return body | {"exclusions": listed}
    except (DatasetError, ValueError, TypeError, OSError) as error:
        raise CapsuleRefused(f"the rows of the capsule cannot be read: {error}") from error
    raise CapsuleRefused(
        f"the split of {dataset.name}@{dataset.version} cannot be made again from its rows: it"
        " follows from earlier versions of the dataset, which the capsule does not have"
    )


def _candidates(version: Json, division: Sequence[SplitRow]) -> Iterator[PrepareOptions]:
    """Yield the version's own options, then its split as a published one."""
    names = PrepareOptions.model_fields
    own = {name: value for name, value in version["options"].items() if name in names}
    with suppress(ValidationError):  # a published split is stored as its hash
        yield PrepareOptions.model_validate(own)
    splits = {row.key: row.split for row in division if row.split != "excluded"}
    yield PrepareOptions.model_validate({"split": {"policy": "published", "splits": splits}})


def _exclusions(division: Sequence[SplitRow]) -> Iterator[Exclusion]:
    """Yield the exclusions of tasks that somebody or a validation made, for ever."""
    for row in division:
        source, _, reason = (row.reason or "").partition(": ")
        if row.split == "excluded" and source in ("user", "validation", "lint"):
            yield Exclusion.model_validate(
                {"scope": "task", "key": row.key, "reason": reason[:MAX_REASON], "source": source}
            )
