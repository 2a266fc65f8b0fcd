"""Creates dataset versions: builds them in a separate process, stores files first, the row last.

A creation builds on a snapshot of its dataset. If another version or other exclusions were stored
meanwhile, it builds again: its split must respect that of the other version.
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

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.datasets import blobs, exclusions, sources, store
from api.datasets.errors import DatasetNotFound, DatasetRejected, DatasetsBusy
from api.datasets.reading.description import describe_version
from api.datasets.reading.inspection import as_json
from api.datasets.request import VersionRequest
from api.datasets.tool_token_counts import tools_in_project
from api.datasets.work import process
from api.datasets.work.process import JobLimits
from api.runs.journal import utc_now
from api.tables import Dataset, DatasetVersion
from api.tables.access import idempotency
from api.tables.access.errors import QuotaExceeded
from api.tables.access.idempotency import RequestKey, StoredResponse
from api.tables.access.quotas import lock_uploads
from api.tables.database import Database
from api.tables.ids import new_id
from hillclimb.blobs.base import BlobStore
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.files import LINEAGE, SPLIT, TASKS
from hillclimb.datasets.prepare import PrepareOptions

MAX_ROUNDS = 3
"""Builds of one creation, while other creations store versions in between."""
QUOTA_RETRY_S = 3600.0
"""When another try at a full store makes sense."""
SOURCE = "source"
UPLOAD = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationContext:
    """Parts of the service that creating a version uses."""

    database: Database
    store: BlobStore
    limits: JobLimits
    prefixes: tuple[str, ...]
    """Sources that the operator allows."""
    max_bytes: int
    store_urls: tuple[str, ...] = ()
    """Addresses of the blob stores: no source lies in one, whatever `prefixes` cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One request for a version."""

    project_id: str
    name: str
    actor: str
    request: VersionRequest
    upload: Path | None
    """The uploaded file; null when the request names a source."""
    key: RequestKey | None = None
    """Idempotency key of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The dataset at the start of a build."""

    num_versions: int
    parent_id: str | None
    heads: tuple[str, ...]
    """Ids of the versions whose lineage files cover all earlier versions."""
    ancestors: tuple[str, ...]
    """Ids of all earlier versions: for heads without a lineage file."""
    in_force: tuple[dict[str, Any], ...]
    """Exclusions of the dataset that versions built now leave out."""
    now: datetime
    source_id: str | None
    """Id of the version that is the source of the tasks; null for other sources."""
    measured: dict[str, Any]
    """Token counts of tools from runs, for lint."""


def create_version(context: CreationContext, order: Order) -> tuple[StoredResponse, bool]:
    """Create a version, or return the existing one of the same tasks and options.

    Returns the response (201 for a new version, 200 for an existing one) and whether it is a
    replay under the same idempotency key.

    Raises:
        DatasetRejected, DatasetTooLarge, DatasetsBusy: as `process.run_job`; also both or neither
            of upload and source.
        DatasetNotFound: the parent, or the version that is the source, does not exist.
        SourceRefused: the service may not fetch from the source.
        IdempotencyKeyReused: the key was used with another request.
    """
    _check_source(order)
    exclusions.check_ends(order.request.exclusions, now=utc_now())
    for _ in range(MAX_ROUNDS):
        with tempfile.TemporaryDirectory(prefix="hillclimb-dataset-") as name:
            with context.database.transaction() as session:
                if order.key and (stored := idempotency.find(session, order.key)):
                    return stored, True
                snapshot = _snapshot(session, order)
            result = _build(context, order, snapshot, Path(name))
            if (answer := _publish(context, order, snapshot, result, Path(name))) is not None:
                return answer
    raise DatasetsBusy(
        f"Other versions and exclusions of {order.name} keep being stored: try again in a minute."
    )


def _check_source(order: Order) -> None:
    if order.upload is None and order.request.source is None:
        raise DatasetRejected(
            "The request has no tasks: send them as the body, or set the option `source`."
        )
    if order.upload is not None and order.request.source is not None:
        raise DatasetRejected("The request has both tasks and a `source`: send one of them.")


def _snapshot(session: Session, order: Order) -> _Snapshot:
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
    return _Snapshot(
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
    """Return the exclusions of a dataset that versions built now leave out."""
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


def _build(
    context: CreationContext, order: Order, snapshot: _Snapshot, folder: Path
) -> dict[str, Any]:
    """Put the inputs into the folder and run the build process on it."""
    source = folder / SOURCE
    if order.upload is not None:
        source.symlink_to(order.upload)
    elif snapshot.source_id is not None:
        blobs.fetch(context.store, snapshot.source_id, TASKS, source)
    else:
        address = str(order.request.source)
        sources.fetch_source(
            address,
            context.prefixes,
            source,
            max_bytes=context.max_bytes,
            stores=context.store_urls,
        )
    job = {
        "options": order.request.prepare_options(),
        "exclusions": [*_dumped(order.request.exclusions), *snapshot.in_force],
        "lineage": _fetch_lineage(context.store, snapshot, folder),
        "now": snapshot.now.isoformat(),
        "measured": snapshot.measured,
    }
    return process.run_job("build", folder, job, context.limits)


def _fetch_lineage(
    blob_store: BlobStore, snapshot: _Snapshot, folder: Path
) -> tuple[tuple[str, ...], ...]:
    """Download the splits of earlier versions; return the file names of each line of ancestors."""
    try:
        for version_id in snapshot.heads:
            blobs.fetch(blob_store, version_id, LINEAGE, folder / version_id)
    except DatasetNotFound:
        for version_id in snapshot.ancestors:
            blobs.fetch(blob_store, version_id, SPLIT, folder / version_id)
        return (snapshot.ancestors,)
    return tuple((version_id,) for version_id in snapshot.heads)


def _publish(
    context: CreationContext,
    order: Order,
    snapshot: _Snapshot,
    result: dict[str, Any],
    folder: Path,
) -> tuple[StoredResponse, bool] | None:
    """Store the version; None when another version or other exclusions were stored meanwhile."""
    with context.database.transaction() as session:
        if _has_other_exclusions(session, order, snapshot):
            return None
        if answer := _existing(session, order, _identity(order.request, result)):
            return answer
    version_id = new_id("dsv")
    blobs.put_version(context.store, version_id, folder)
    with context.database.transaction() as session:
        answer = _insert(session, order, snapshot, result, version_id)
    if answer is None or answer[0].response["id"] != version_id:
        # After an error the row may exist or not: then the sweep decides.
        blobs.delete_version(context.store, version_id)
    return answer


def _insert(
    session: Session, order: Order, snapshot: _Snapshot, result: dict[str, Any], version_id: str
) -> tuple[StoredResponse, bool] | None:
    dataset = store.lock_dataset(session, order.project_id, order.name, actor=order.actor)
    if dataset.num_versions != snapshot.num_versions or _has_other_exclusions(
        session, order, snapshot
    ):
        return None
    if order.key and (stored := idempotency.begin(session, order.key)):
        return stored, True
    _refuse_above_quota(session, order.project_id, result["size_bytes"])
    dataset.num_versions += 1
    version = _row(order, dataset, snapshot, result, version_id)
    session.add(version)
    session.flush()
    session.refresh(version)
    drafts = order.request.exclusions
    exclusions.add(session, dataset, drafts, actor=order.actor, with_version=True)
    answer = _stored_response(201, dataset, version)
    if order.key:
        idempotency.finish(session, order.key, answer)
    return answer, False


def _refuse_above_quota(session: Session, project_id: str, size_bytes: int) -> None:
    """Raise QuotaExceeded if the project's versions would take more than its quota."""
    limit = lock_uploads(session, project_id).limits["dataset_bytes"]
    sizes = select(func.coalesce(func.sum(DatasetVersion.size_bytes), 0))
    stored = session.scalar(sizes.where(DatasetVersion.project_id == project_id)) or 0
    if stored + size_bytes > limit:
        raise QuotaExceeded(
            f"This version has {size_bytes:,} bytes and the project has stored {int(stored):,}; its"
            f" quota of datasets is {limit:,} bytes: upload fewer tasks, or ask the operator for"
            " more.",
            retry_after_s=QUOTA_RETRY_S,
        )


def _has_other_exclusions(session: Session, order: Order, snapshot: _Snapshot) -> bool:
    try:
        dataset = store.find_dataset(session, order.project_id, order.name)
    except DatasetNotFound:
        return False
    return _in_force(session, dataset, snapshot.now) != snapshot.in_force


def _existing(session: Session, order: Order, identity: str) -> tuple[StoredResponse, bool] | None:
    """Return the existing version of the same tasks and options; None without one."""
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
    answer = _stored_response(200, dataset, version)
    if order.key:
        idempotency.finish(session, order.key, answer)
    return answer, False


def _stored_response(status: int, dataset: Dataset, version: DatasetVersion) -> StoredResponse:
    payload = describe_version(dataset, version)
    return StoredResponse(status=status, response=payload.model_dump(mode="json"))


def _row(
    order: Order, dataset: Dataset, snapshot: _Snapshot, result: dict[str, Any], version_id: str
) -> DatasetVersion:
    counts = {name: result[name] for name in ("num_tasks", "num_train", "num_eval", "size_bytes")}
    apart = {*counts, "digest", "findings"}
    return DatasetVersion(
        id=version_id,
        project_id=order.project_id,
        dataset_id=dataset.id,
        number=dataset.num_versions,
        parent_id=snapshot.parent_id,
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
    """Return a hash of the tasks, split, options and named parent.

    The parent counts: its eval tasks must never become training tasks here, even in later versions
    that descend from one without any of them.
    """
    stored = request.stored()
    options = {name: stored[name] for name in (*PrepareOptions.model_fields, "parent")}
    canonical = json.dumps([result["digest"], options], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
