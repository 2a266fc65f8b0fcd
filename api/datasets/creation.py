"""Makes versions: read in a process of its own, files first, the row in the database last.

Two creations at once may both be built on the same past. The one that comes second finds another
number of versions than it began with, and is built again: its split must know the first one's. So
is one that finds other exclusions in force than it was built with.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from api.datasets import blobs, exclusions, sources, store
from api.datasets.errors import DatasetNotFound, DatasetRejected, DatasetsBusy
from api.datasets.reading.description import version_facts
from api.datasets.reading.inspection import as_json
from api.datasets.request import VersionRequest
from api.datasets.tool_token_counts import tools_in_project
from api.datasets.work import process
from api.datasets.work.process import JobLimits
from api.runs.journal import utc_now
from api.tables import Dataset, DatasetVersion, idempotency
from api.tables.database import Database
from api.tables.idempotency import RequestKey, StoredResponse
from api.tables.ids import new_id
from hillclimb.blobs.base import BlobStore
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.files import LINEAGE, SPLIT, TASKS
from hillclimb.datasets.prepare import PrepareOptions

MAX_ROUNDS = 3
"""How often a creation is built anew because another one came in between."""
SOURCE = "source"
UPLOAD = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Parts of the service that creating a version uses."""

    database: Database
    store: BlobStore
    limits: JobLimits
    prefixes: tuple[str, ...]
    """Sources that the operator allows."""
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One request for a version."""

    project_id: str
    name: str
    actor: str
    request: VersionRequest
    upload: Path | None
    """The file as it was sent; null when the request names a source."""
    key: RequestKey | None = None
    """Makes the request repeatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """The dataset as it was when the build began."""

    num_versions: int
    parent_id: str | None
    heads: tuple[str, ...]
    """Ids of the versions whose lineages count, each of which has all before it."""
    ancestors: tuple[str, ...]
    """Ids of all these: for versions that were made before lineages were stored."""
    in_force: tuple[dict[str, Any], ...]
    """What the dataset excludes."""
    now: datetime
    source_id: str | None
    """Id of the version whose tasks are taken."""
    measured: dict[str, Any]
    """Tokens of tools that runs counted, for lint."""


def create_version(shop: Workshop, order: Order) -> tuple[StoredResponse, bool]:
    """Make a version, or find the one that the same tasks and options made before.

    Returns the answer (201 for a new version, 200 for an old one) and whether it was given before
    under the same idempotency key.

    Raises:
        DatasetRejected, DatasetTooLarge, DatasetsBusy: as `process.run_job`; also both or neither
            of upload and source.
        DatasetNotFound: the parent or the version to take tasks from is not there.
        SourceRefused: the service may not fetch from the source.
        IdempotencyKeyReused: the key came with another request.
    """
    _check_source(order)
    exclusions.check_ends(order.request.exclusions, now=utc_now())
    for _ in range(MAX_ROUNDS):
        with tempfile.TemporaryDirectory(prefix="hillclimb-dataset-") as name:
            with shop.database.transaction() as session:
                if order.key and (stored := idempotency.find(session, order.key)):
                    return stored, True
                past = _past(session, order)
            result = _build(shop, order, past, Path(name))
            if (answer := _publish(shop, order, past, result, Path(name))) is not None:
                return answer
    raise DatasetsBusy(
        f"Versions and exclusions of {order.name} keep being made: try again in a minute."
    )


def _check_source(order: Order) -> None:
    if order.upload is None and order.request.source is None:
        raise DatasetRejected(
            "There are no tasks: send them as the body, or name where they are in the option"
            " `source`."
        )
    if order.upload is not None and order.request.source is not None:
        raise DatasetRejected("There are tasks and a `source` to fetch others from: give one.")


def _past(session: Session, order: Order) -> _Past:
    now = utc_now()
    try:
        dataset: Dataset | None = store.find_dataset(session, order.project_id, order.name)
    except DatasetNotFound:
        dataset = None
    newest = store.newest_version(session, dataset) if dataset else None
    chosen = _version_named(session, order.project_id, order.request.parent)
    source = order.request.source
    from_version = source if source and not sources.is_address(source) else None
    version = _version_named(session, order.project_id, from_version)
    parent = chosen or newest
    heads = tuple(dict.fromkeys(each.id for each in (newest, chosen) if each))
    lines = [store.ancestry(session, each) for each in (newest, chosen) if each]
    return _Past(
        num_versions=dataset.num_versions if dataset else 0,
        parent_id=parent.id if parent else None,
        heads=heads,
        ancestors=tuple(sorted({each for line in lines for each in line})),
        in_force=_in_force(session, dataset, now),
        now=now,
        source_id=version.id if version else None,
        measured=as_json(tools_in_project(session, order.project_id, order.name)),
    )


def _in_force(
    session: Session, dataset: Dataset | None, now: datetime
) -> tuple[dict[str, Any], ...]:
    """Return the exclusions of a dataset that count for versions built now."""
    stored = store.list_exclusions(session, dataset, now=now) if dataset else []
    return _dumped(map(exclusions.as_contract, stored))


def _dumped(drafts: Iterable[Exclusion]) -> tuple[dict[str, Any], ...]:
    return tuple(
        each.model_dump(mode="json") for each in drafts if exclusions.counts_at_building(each)
    )


def _version_named(session: Session, project_id: str, name: str | None) -> DatasetVersion | None:
    if name is None:
        return None
    dataset, _, number = name.partition("@")
    return store.find_version(session, project_id, dataset, int(number))[1]


def _build(shop: Workshop, order: Order, past: _Past, folder: Path) -> dict[str, Any]:
    """Bring everything into the folder and run the process on it."""
    source = folder / SOURCE
    if order.upload is not None:
        source.symlink_to(order.upload)
    elif past.source_id is not None:
        blobs.fetch(shop.store, past.source_id, TASKS, source)
    else:
        address = str(order.request.source)
        sources.fetch_source(address, shop.prefixes, source, max_bytes=shop.max_bytes)
    job = {
        "options": order.request.prepare_options(),
        "exclusions": [*_dumped(order.request.exclusions), *past.in_force],
        "lineage": _bring_lineage(shop.store, past, folder),
        "now": past.now.isoformat(),
        "measured": past.measured,
    }
    return process.run_job("build", folder, job, shop.limits)


def _bring_lineage(blob_store: BlobStore, past: _Past, folder: Path) -> tuple[tuple[str, ...], ...]:
    """Bring what earlier versions did; return the names of the files of each line of ancestors."""
    try:
        for version_id in past.heads:
            blobs.fetch(blob_store, version_id, LINEAGE, folder / version_id)
    except DatasetNotFound:
        for version_id in past.ancestors:
            blobs.fetch(blob_store, version_id, SPLIT, folder / version_id)
        return (past.ancestors,)
    return tuple((version_id,) for version_id in past.heads)


def _publish(
    shop: Workshop, order: Order, past: _Past, result: dict[str, Any], folder: Path
) -> tuple[StoredResponse, bool] | None:
    """Store the version; None when another one was stored since the building began.

    None also when other exclusions are in force by now.
    """
    with shop.database.transaction() as session:
        if _has_other_exclusions(session, order, past):
            return None
        if answer := _existing(session, order, _identity(order.request, result)):
            return answer
    version_id = new_id("dsv")
    blobs.put_version(shop.store, version_id, folder)
    with shop.database.transaction() as session:
        answer = _insert(session, order, past, result, version_id)
    if answer is None or answer[0].response["id"] != version_id:
        # After an error nobody knows whether the row is there: then the sweep decides.
        blobs.delete_version(shop.store, version_id)
    return answer


def _insert(
    session: Session, order: Order, past: _Past, result: dict[str, Any], version_id: str
) -> tuple[StoredResponse, bool] | None:
    dataset = store.lock_dataset(session, order.project_id, order.name, actor=order.actor)
    if dataset.num_versions != past.num_versions or _has_other_exclusions(session, order, past):
        return None
    if order.key and (stored := idempotency.begin(session, order.key)):
        return stored, True
    dataset.num_versions += 1
    version = _row(order, dataset, past, result, version_id)
    session.add(version)
    session.flush()
    session.refresh(version)
    drafts = order.request.exclusions
    exclusions.add(session, dataset, drafts, actor=order.actor, with_version=True)
    answer = StoredResponse(status=201, response=version_facts(dataset, version))
    if order.key:
        idempotency.finish(session, order.key, answer)
    return answer, False


def _has_other_exclusions(session: Session, order: Order, past: _Past) -> bool:
    try:
        dataset = store.find_dataset(session, order.project_id, order.name)
    except DatasetNotFound:
        return False
    return _in_force(session, dataset, past.now) != past.in_force


def _existing(session: Session, order: Order, identity: str) -> tuple[StoredResponse, bool] | None:
    """Answer with the version that the same tasks and options made before, if there is one."""
    try:
        dataset = store.find_dataset(session, order.project_id, order.name)
    except DatasetNotFound:
        return None
    version = store.same_version(session, dataset, identity)
    if version is None:
        return None
    if order.key and (stored := idempotency.begin(session, order.key)):
        return stored, True
    drafts = order.request.exclusions
    exclusions.add(session, dataset, drafts, actor=order.actor, with_version=True)
    answer = StoredResponse(status=200, response=version_facts(dataset, version))
    if order.key:
        idempotency.finish(session, order.key, answer)
    return answer, False


def _row(
    order: Order, dataset: Dataset, past: _Past, result: dict[str, Any], version_id: str
) -> DatasetVersion:
    counts = {name: result[name] for name in ("num_tasks", "num_train", "num_eval", "size_bytes")}
    apart = {*counts, "digest", "findings"}
    return DatasetVersion(
        id=version_id,
        project_id=order.project_id,
        dataset_id=dataset.id,
        number=dataset.num_versions,
        parent_id=past.parent_id,
        digest=result["digest"],
        identity=_identity(order.request, result),
        source=order.request.source or UPLOAD,
        options=order.request.stored(),
        facts={name: value for name, value in result.items() if name not in apart},
        lint={"findings": result["findings"]},
        created_by=order.actor,
        **counts,
    )


def _identity(request: VersionRequest, result: dict[str, Any]) -> str:
    """Return what is the same for the same tasks, split, options and named parent.

    The parent counts: what it evaluated on must never become training here, even where this version
    has none of its tasks.
    """
    stored = request.stored()
    options = {name: stored[name] for name in (*PrepareOptions.model_fields, "parent")}
    canonical = json.dumps([result["digest"], options], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
