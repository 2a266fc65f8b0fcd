"""The capsule of a run: its manifest, and the zip as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.results.artifacts.capsule.facts import capsule_dataset, capsule_facts
from api.results.artifacts.capsule.rows import (
    eval_facts,
    event_lines,
    json_document,
    outcome_lines,
)
from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.zip_stream import Members, zip_stream
from api.tables import Dataset, DatasetVersion, Run
from api.tables.database import Database
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.datasets.format import files
from hillclimb.protocol.payloads.studies.capsule import (
    EVALS,
    EVENTS,
    MANIFEST,
    OUTCOMES,
    SPEC,
    SPLIT,
    TASKS,
    VERSION,
    CapsuleManifest,
    CapsuleMember,
)

FETCH_BYTES = 4 << 20
"""Size of a read from the blob store (bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capsule:
    """The parts of a capsule from one transaction; its many rows are read as it is sent."""

    manifest: CapsuleManifest
    spec: Mapping[str, Any]
    evals: list[dict[str, Any]]
    dataset: tuple[Dataset, DatasetVersion] | None


def prepare_capsule(session: Session, run: Run) -> Capsule:
    """Return the run's capsule, to be sent by `send_capsule`."""
    return Capsule(
        manifest=capsule_facts(session, run),
        spec=run.spec,
        evals=eval_facts(session, run.id),
        dataset=capsule_dataset(session, run),
    )


def send_capsule(
    capsule: Capsule,
    database: Database,
    store: BlobStore,
    version: Mapping[str, Any] | None,
    *,
    with_tasks: bool,
) -> Iterator[bytes]:
    """Return the bytes of the zip; `version` is the description of the dataset version.

    An ended run always gives the same bytes.

    Raises:
        ArtifactNotFound: the rows of the dataset are asked for, and not in the store.
        StoreError: the store does not respond.
    """
    keys = _blobs(capsule, store) if with_tasks else {}

    def seal(members: Mapping[str, CapsuleMember]) -> bytes:
        sealed = capsule.manifest.model_copy(update={"members": dict(members)})
        return json_document(sealed.model_dump(mode="json"))

    def members() -> Members:
        run_id, last_seq = capsule.manifest.run_id, capsule.manifest.last_seq
        yield SPEC, [json_document(capsule.spec)]
        yield EVENTS, event_lines(database, run_id, last_seq=last_seq)
        yield EVALS, [json_document(capsule.evals)]
        yield OUTCOMES, outcome_lines(database, run_id)
        if version is not None:
            yield VERSION, [json_document(version)]
        for name, key in keys.items():
            yield name, _read(store, key)

    return zip_stream(members(), MANIFEST, seal)


def _blobs(capsule: Capsule, store: BlobStore) -> dict[str, str]:
    """Return the blob keys of rows and split; raises ArtifactNotFound if one is missing."""
    if capsule.dataset is None:
        return {}
    dataset, version = capsule.dataset
    keys = {
        TASKS: files.version_key(version.id, files.TASKS),
        SPLIT: files.version_key(version.id, files.SPLIT),
    }
    try:
        for key in keys.values():
            store.size(key)
    except BlobMissing as error:
        raise ArtifactNotFound(
            f"The rows of {dataset.name}@{version.number} are not in the store: export the capsule"
            " without them."
        ) from error
    return keys


def _read(store: BlobStore, key: str) -> Iterator[bytes]:
    start = 0
    while chunk := store.get_range(key, start, FETCH_BYTES):
        yield chunk
        start += len(chunk)
