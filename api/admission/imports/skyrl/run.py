"""Imports SkyRL's dumps: a run whose evaluations have the dumps' outcomes and trajectories."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from sqlalchemy.orm import Session

from api.admission.imports.adopt import (
    ImportContext,
    RunKey,
    adopt_or_store,
    earlier_import,
)
from api.admission.imports.digest import import_digest
from api.admission.imports.ended_run import add_ended_run, record_events
from api.admission.imports.errors import ImportRejected
from api.admission.imports.skyrl.dump import Dump, DumpedEval, dump_digests, read_dump
from api.admission.imports.skyrl.options import SkyRLOptions, imported_spec
from api.tables import Run
from hillclimb.blobs.archive.zip_file import ArchiveRefused, open_zip
from hillclimb.protocol.events import EvalCompleted
from hillclimb.protocol.payloads.runs import OriginPayload
from hillclimb.stats.trajectories.skyrl.metrics import eval_metrics, largest_group

IMPORTER_VERSION = 1
MAX_ENVIRONMENTS = 64
MAX_NAMED = 3
"""Metrics that a warning names."""


def import_skyrl(
    context: ImportContext, path: Path, options: SkyRLOptions, *, max_bytes: int
) -> tuple[str, bool]:
    """Import the dump in a zip file; returns the run's id, and False for an earlier import's.

    `max_bytes` limits the unpacked dump.

    Raises:
        ImportRejected: the file is no zip of a dump, or beyond a limit.
        StoreError: the blob store does not respond.
    """
    try:
        with (
            open_zip(path, max_bytes=max_bytes) as archive,
            tempfile.TemporaryDirectory(prefix="hillclimb-import-") as folder,
        ):
            return _import(context, archive, Path(folder), options)
    except ArchiveRefused as error:
        raise ImportRejected(f"{error}.") from error


def _import(
    context: ImportContext, archive: ZipFile, folder: Path, options: SkyRLOptions
) -> tuple[str, bool]:
    origin = OriginPayload(
        kind="skyrl",
        source=options.source,
        digest=import_digest(dump_digests(archive), options.of_rows()),
        importer_version=IMPORTER_VERSION,
        is_schedule_known=options.total_steps is not None,
    )
    # Reading the rows takes long: not for a dump that is there already.
    if (existing := earlier_import(context, origin)) is not None:
        return existing, False
    dump = read_dump(archive, folder, options)
    _check(dump)

    def write(session: Session, key: RunKey) -> Run:
        return _write(session, key, dump, options)

    return adopt_or_store(context, origin, dump.files, write)


def _check(dump: Dump) -> None:
    if not dump.num_rollouts:
        raise ImportRejected("The dump has no rollout: it needs a file global_step_N/ENV.jsonl.")
    if len(dump.env_keys) > MAX_ENVIRONMENTS:
        raise ImportRejected(
            f"The dump has {len(dump.env_keys)} environments, and a run at most {MAX_ENVIRONMENTS}."
        )


def _write(session: Session, key: RunKey, dump: Dump, options: SkyRLOptions) -> Run:
    evals = [dump.evals[step] for step in sorted(dump.evals)]
    spec = imported_spec(
        options,
        env_keys=dump.env_keys,
        num_samples=max(largest_group(each.rewards) for each in evals),
        last_step=evals[-1].step,
    )
    events = [_event(each, options, seq=seq, key=key) for seq, each in enumerate(evals, start=1)]
    run = add_ended_run(session, key, spec, last_step=evals[-1].step, ended_at=key.now)
    record_events(session, run, key, events, [s for each in evals for s in _differences(each)])
    return run


def _event(each: DumpedEval, options: SkyRLOptions, *, seq: int, key: RunKey) -> EvalCompleted:
    num_samples = largest_group(each.rewards)
    return EvalCompleted(
        step=each.step,
        decoding=options.decoding,
        temperature=options.temperature,
        n_samples_per_prompt=max(1, num_samples),
        pass_threshold=options.pass_threshold,
        metrics=_own_metrics(each) if each.metrics is None else each.metrics,
        outcomes=tuple(each.outcomes),
        duration_s=0.0,
    ).numbered(seq, key.now)


def _own_metrics(each: DumpedEval) -> dict[str, float]:
    return eval_metrics(each.rewards, num_samples=largest_group(each.rewards))


def _differences(each: DumpedEval) -> Iterator[str]:
    """Yield a warning where the step's metrics are not those of its rollouts."""
    stored = each.metrics or {}
    computed = _own_metrics(each) if each.rewards else {}
    names = [
        name
        for name, value in computed.items()
        if name in stored and not math.isclose(stored[name], value, rel_tol=1e-9, abs_tol=1e-12)
    ]
    if names:
        yield (
            f"{len(names)} metrics of step {each.step} are not those of its rollouts, such as"
            f" {', '.join(names[:MAX_NAMED])}: the rollouts may be incomplete."
        )
