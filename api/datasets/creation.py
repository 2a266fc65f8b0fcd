"""Makes versions: read in a process of its own, files first, the row in the database last.

Two creations at once may both be built on the same past. The one that comes second finds another
number of versions than it began with, and is built again: its split must know the first one's.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from api.database import Database
from api.datasets import blobs, exclusions, process, sources, store
from api.datasets.errors import DatasetNotFound, DatasetRejected, DatasetsBusy
from api.datasets.facts import version_facts
from api.datasets.process import Limits
from api.datasets.request import VersionRequest
from api.ids import new_id
from api.runs import idempotency
from api.runs.idempotency import Answer, RequestKey
from api.runs.journal import utc_now
from api.tables import Dataset, DatasetVersion
from trainer.contract.datasets.files import SPLIT, TASKS
from trainer.stores.base import BlobStore

MAX_ROUNDS = 3
"""How often a creation is built anew because another one came in between."""
SOURCE = "source"
UPLOAD = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What making a version needs of the service."""

    database: Database
    store: BlobStore
    limits: Limits
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
    """What there was when the building began."""

    num_versions: int
    parent_id: str | None
    lineage: tuple[str, ...]
    """Ids of the versions whose splits count."""
    excluded: tuple[dict[str, Any], ...]
    now: datetime
    source_id: str | None
    """Id of the version whose tasks are taken."""


def create_version(shop: Workshop, order: Order) -> tuple[Answer, bool]:
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
                if order.key and (found := idempotency.find(session, order.key)):
                    return found, True
                past = _past(session, order)
            result = _build(shop, order, past, Path(name))
            if (answer := _publish(shop, order, past, result, Path(name))) is not None:
                return answer
    raise DatasetsBusy(f"Other versions of {order.name} keep being made: try again in a minute.")


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
    own = store.list_versions(session, dataset, before=None, limit=10**6) if dataset else []
    chosen = _version_named(session, order.project_id, order.request.parent)
    in_force = store.list_exclusions(session, dataset, now=now) if dataset else []
    excluded = [*order.request.exclusions, *map(exclusions.as_contract, in_force)]
    source = order.request.source
    from_version = source if source and not sources.is_address(source) else None
    taken = _version_named(session, order.project_id, from_version)
    parent = chosen or (own[0] if own else None)
    return _Past(
        num_versions=dataset.num_versions if dataset else 0,
        parent_id=parent.id if parent else None,
        lineage=store.ancestry(session, [*own, *([chosen] if chosen else [])]),
        excluded=tuple(
            each.model_dump(mode="json") for each in excluded if exclusions.counts_at_building(each)
        ),
        now=now,
        source_id=taken.id if taken else None,
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
    for version_id in past.lineage:
        blobs.fetch(shop.store, version_id, SPLIT, folder / version_id)
    job = {
        "options": order.request.prepare_options(),
        "exclusions": past.excluded,
        "lineage": past.lineage,
        "now": past.now.isoformat(),
    }
    return process.run_job("build", folder, job, shop.limits)


def _publish(
    shop: Workshop, order: Order, past: _Past, result: dict[str, Any], folder: Path
) -> tuple[Answer, bool] | None:
    """Store the version; None when another one was stored since the building began."""
    with shop.database.transaction() as session:
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
) -> tuple[Answer, bool] | None:
    dataset = store.lock_dataset(session, order.project_id, order.name, actor=order.actor)
    if dataset.num_versions != past.num_versions:
        return None
    if order.key and (found := idempotency.begin(session, order.key)):
        return found, True
    dataset.num_versions += 1
    version = _row(order, dataset, past, result, version_id)
    session.add(version)
    session.flush()
    session.refresh(version)
    exclusions.add(session, dataset, order.request.exclusions, actor=order.actor)
    answer = Answer(status=201, response=version_facts(dataset, version))
    if order.key:
        idempotency.finish(session, order.key, answer)
    return answer, False


def _existing(session: Session, order: Order, identity: str) -> tuple[Answer, bool] | None:
    """Answer with the version that the same tasks and options made before, if there is one."""
    try:
        dataset = store.find_dataset(session, order.project_id, order.name)
    except DatasetNotFound:
        return None
    version = store.same_version(session, dataset, identity)
    if version is None:
        return None
    if order.key and (found := idempotency.begin(session, order.key)):
        return found, True
    exclusions.add(session, dataset, order.request.exclusions, actor=order.actor)
    answer = Answer(status=200, response=version_facts(dataset, version))
    if order.key:
        idempotency.finish(session, order.key, answer)
    return answer, False


def _row(
    order: Order, dataset: Dataset, past: _Past, result: dict[str, Any], version_id: str
) -> DatasetVersion:
    kept = {name: result[name] for name in ("num_tasks", "num_train", "num_eval", "size_bytes")}
    apart = {*kept, "digest", "findings"}
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
        **kept,
    )


def _identity(request: VersionRequest, result: dict[str, Any]) -> str:
    """Return what is the same for the same tasks, split, options and named parent.

    The parent counts: what it evaluated on must never become training here, even where this version
    has none of its tasks.
    """
    options = {name: request.stored()[name] for name in ("filters", "split", "lint", "parent")}
    canonical = json.dumps([result["digest"], options], sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
