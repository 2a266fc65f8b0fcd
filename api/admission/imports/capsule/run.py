"""Imports a capsule: its run with its events, and the rows that follow from them."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import insert, select
from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from api.admission.imports.adopt import ImportContext, RunKey, adopt_or_store
from api.admission.imports.capsule.journal import StoredEvent, first_fault, stored_events
from api.admission.imports.capsule.outcomes import derive_steps, measured_by_step
from api.admission.imports.digest import import_digest
from api.admission.imports.ended_run import imported_event
from api.admission.imports.errors import ImportRejected
from api.results.comparison.config_diff import IMPORTED_MODEL
from api.runs.journal import append
from api.runs.status import TERMINAL, DesiredState
from api.tables import Dataset, DatasetVersion, Run, RunEvent
from hillclimb.blobs.archive.capsule import CapsuleArchive
from hillclimb.blobs.archive.zip_file import ArchiveRefused, check_directory
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.runs import OriginPayload
from hillclimb.protocol.payloads.studies.capsule import REQUIRED, SPEC, CapsuleManifest
from hillclimb.spec.data import DatasetRef
from hillclimb.spec.monitoring.reporting import NotifySpec
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.lineage import LineageSpec

IMPORTER_VERSION = 1
KINDS = ("train", "eval", "probe")
"""Kinds of runs whose results are in a capsule; those of the others are files of the store."""
MAX_MEMBER_BYTES = 256 << 20
"""Largest member that is read (bytes, unpacked)."""
PAGE = 1_000
RUN_ID = re.compile(r"run_[0-9a-z]{10,40}")
SHA256 = re.compile(r"[0-9a-f]{64}")


def import_capsule(context: ImportContext, path: Path) -> tuple[str, bool]:
    """Import a capsule; returns the run's id, and False for an earlier import's.

    Every member is compared with the manifest first.

    Raises:
        ImportRejected: it is no capsule of a run that ended, or a row of it cannot be stored.
    """
    try:
        check_directory(path)
        with CapsuleArchive.open(path) as archive:
            _check_sizes(archive.manifest)
            archive.verify()
            return _import(context, archive)
    except ArchiveRefused as error:
        raise ImportRejected(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    except (DataError, UnicodeEncodeError) as error:
        raise ImportRejected(
            "The capsule has a number or a text that the database cannot store."
        ) from error


def _import(context: ImportContext, archive: CapsuleArchive) -> tuple[str, bool]:
    manifest, spec = archive.manifest, _spec(archive)
    origin = OriginPayload(
        kind="capsule",
        source=manifest.run_id,
        digest=import_digest({name: manifest.members[name].sha256 for name in REQUIRED}, {}),
        importer_version=IMPORTER_VERSION,
        is_schedule_known=not spec.model.source.startswith(IMPORTED_MODEL),
    )

    def write(session: Session, key: RunKey) -> Run:
        run = _add_run(session, key, archive.manifest, spec)
        _copy_events(session, run, archive)
        append(session, run, [imported_event(run, key)])
        events = measured_by_step(stored_events(archive, last_seq=manifest.last_seq))
        derive_steps(session, run, events, archive)
        return run

    return adopt_or_store(context, origin, {}, write)


def _check_sizes(manifest: CapsuleManifest) -> None:
    for name in REQUIRED:
        size = manifest.members[name].size_bytes
        if size > MAX_MEMBER_BYTES:
            raise ImportRejected(
                f"{name} unpacks to {size:,} bytes, and an import reads {MAX_MEMBER_BYTES:,}."
            )


def _spec(archive: CapsuleArchive) -> RunSpec:
    """Return the capsule's spec; raises ImportRejected for a run that cannot be imported."""
    manifest = archive.manifest
    try:
        spec = RunSpec.model_validate(archive.document(SPEC))
    except ValidationError as error:
        raise ImportRejected(
            f"This version rejects the capsule's spec: {first_fault(error)}."
        ) from error
    if spec.kind not in KINDS:
        raise ImportRejected(
            f"The capsule is of a run of kind {spec.kind}, whose results are not in a capsule."
        )
    if manifest.status not in TERMINAL:
        raise ImportRejected(
            f"The run was {manifest.status[:40]} when the capsule was exported: export it again"
            " once the run has ended."
        )
    codes = {code.value for code in ReasonCode}
    is_known = manifest.end_code is None or manifest.end_code in codes
    if not (is_known and RUN_ID.fullmatch(manifest.run_id)):
        raise ImportRejected("The manifest has no id of a run, or an end reason unknown here.")
    if not SHA256.fullmatch(manifest.config_hash):
        raise ImportRejected("The manifest's config_hash is no SHA-256.")
    return spec


def _add_run(session: Session, key: RunKey, manifest: CapsuleManifest, spec: RunSpec) -> Run:
    ended = manifest.ended_at or manifest.created_at
    run = Run(
        id=key.id,
        project_id=key.project_id,
        name=spec.name,
        status=manifest.status,
        desired_state=DesiredState.RUNNING.value,
        spec=_stored(session, key, spec).model_dump(mode="json"),
        config_hash=manifest.config_hash,
        created_by=key.actor,
        origin=key.origin.model_dump(mode="json"),
        end_code=manifest.end_code,
        end_message=None,
        num_failures=0,
        attempt=0,
        progress_step=0,
        progress_total=spec.schedule.total_steps if spec.kind == "train" else 0,
        last_seq=0,
        epoch=0,
        status_since=ended,
        created_at=key.now,
        updated_at=key.now,
        started_at=manifest.started_at,
        ended_at=ended,
    )
    session.add(run)
    session.flush()
    return run


def _stored(session: Session, key: RunKey, spec: RunSpec) -> RunSpec:
    """Return the spec without what would name something of this installation.

    Nobody is notified, no run here is its predecessor, and its dataset is the version with the
    same digest in this project, or none.
    """
    data, dataset = spec.data, spec.data.dataset
    if dataset is not None:
        version = session.scalar(
            select(DatasetVersion.id)
            .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
            .where(
                DatasetVersion.project_id == key.project_id,
                Dataset.name == dataset.name,
                DatasetVersion.digest == dataset.digest,
            )
            .limit(1)
        )
        named = DatasetRef(
            name=dataset.name, version=dataset.version, id=version, digest=dataset.digest
        )
        data = data.model_copy(update={"dataset": named})
    return spec.model_copy(
        update={"data": data, "notify": NotifySpec(), "lineage": LineageSpec(), "budget": None}
    )


def _copy_events(session: Session, run: Run, archive: CapsuleArchive) -> None:
    """Write the events with their numbers, and the progress that they report."""
    events = stored_events(archive, last_seq=archive.manifest.last_seq)
    while page := list(islice(events, PAGE)):
        session.execute(insert(RunEvent), [event.row(run.id) for event in page])
        for event in page:
            run.attempt = max(run.attempt, event.attempt or 0)
            run.progress_step = max(run.progress_step, _trained_step(event))
        run.last_seq = page[-1].seq


def _trained_step(event: StoredEvent) -> int:
    step = event.data.get("step")
    return step if event.type == "step.completed" and type(step) is int and step < 2**31 else 0
