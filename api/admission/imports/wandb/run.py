"""Imports a W&B history: its metrics by step, as a run of which no outcome is known.

Its evaluations have rates and nothing else: no verdict can be computed, and none is.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from sqlalchemy.orm import Session

from api.admission.imports.adopt import ImportContext, RunKey, adopt_or_store
from api.admission.imports.digest import import_digest
from api.admission.imports.ended_run import add_ended_run, record_events
from api.admission.imports.errors import ImportRejected
from api.admission.imports.metrics import MAX_METRICS, is_metrics
from api.admission.imports.wandb.options import (
    OWN_EVAL,
    WandbOptions,
    imported_spec,
    place_of_metric,
)
from api.tables import Run
from hillclimb.blobs.archive.gzip_file import GZIP_MAGIC
from hillclimb.protocol.events import EvalCompleted, Event, StepCompleted
from hillclimb.protocol.payloads.runs import OriginPayload
from hillclimb.spec.monitoring.old_metrics import EVAL
from hillclimb.spec.section import ENV_KEY_PATTERN

IMPORTER_VERSION = 2
"""2: every old name of `hillclimb.spec.monitoring.old_metrics`."""
MAX_LINE_BYTES = 1 << 20
MAX_STEP = 10_000_000
MAX_STEPS = 100_000
MAX_VALUES = 1_000_000
MAX_ENVIRONMENTS = 64
DAMAGED = (OSError, EOFError, zlib.error)
_ENV = re.compile(r"(?:reward|environment|eval)/([^/]+)/.+")
_PASS_AT = re.compile(r".*/pass_at_([1-9][0-9]{0,2})")
NO_ENVIRONMENT = frozenset(
    {"all", "generate", "environment", "seen_templates", "held_out_templates"}
)


@dataclass(slots=True)
class _Step:
    train: dict[str, float] = field(default_factory=dict)
    evals: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """By decoding."""


@dataclass(slots=True)
class _History:
    steps: dict[int, _Step] = field(default_factory=lambda: defaultdict(_Step))
    env_keys: set[str] = field(default_factory=set)
    num_values: int = 0
    digest: str = ""


def import_wandb(
    context: ImportContext, path: Path, options: WandbOptions, *, max_bytes: int
) -> tuple[str, bool]:
    """Import JSON lines of `step` and `metrics`; returns the run's id, and False for an earlier.

    The file may be compressed by gzip; `max_bytes` limits what it unpacks to.

    Raises:
        ImportRejected: a line is no such row, or there are too many.
    """
    history = _read(path, options, max_bytes)
    origin = OriginPayload(
        kind="wandb",
        source=options.source,
        digest=import_digest({"history": history.digest}, options.of_rows()),
        importer_version=IMPORTER_VERSION,
        is_schedule_known=False,
    )

    def write(session: Session, key: RunKey) -> Run:
        last = max(history.steps)
        envs = tuple(sorted(history.env_keys))[:MAX_ENVIRONMENTS] or ("unknown",)
        spec = imported_spec(options, env_keys=envs, last_step=last)
        run = add_ended_run(session, key, spec, last_step=last, ended_at=key.now)
        record_events(session, run, key, list(_events(history, options, key)), ())
        return run

    return adopt_or_store(context, origin, {}, write)


def _events(history: _History, options: WandbOptions, key: RunKey) -> Iterator[Event]:
    """Yield a step, then its evaluations, in the order of steps."""
    number = 0
    for step in sorted(history.steps):
        measured = history.steps[step]
        if measured.train:
            number += 1
            done = StepCompleted(step=step, metrics=measured.train, outcomes=())
            yield done.numbered(number, key.now)
        for decoding, metrics in sorted(measured.evals.items()):
            number += 1
            yield EvalCompleted(
                step=step,
                decoding=decoding,
                temperature=options.temperature,
                n_samples_per_prompt=_num_samples(metrics),
                pass_threshold=1.0,
                metrics=metrics,
                outcomes=(),
                duration_s=0.0,
            ).numbered(number, key.now)


def _num_samples(metrics: dict[str, float]) -> int:
    """Return the largest n of the names `pass_at_n`."""
    return max((int(m[1]) for name in metrics if (m := _PASS_AT.fullmatch(name))), default=1)


def _read(path: Path, options: WandbOptions, max_bytes: int) -> _History:
    history, digest, size = _History(), hashlib.sha256(), 0
    try:
        with _open(path) as lines:
            number = 0
            while line := lines.readline(MAX_LINE_BYTES + 1):
                number, size = number + 1, size + len(line)
                if len(line) > MAX_LINE_BYTES or size > max_bytes:
                    raise ImportRejected(
                        f"Line {number}: a line has at most {MAX_LINE_BYTES:,} bytes, and the"
                        f" history {max_bytes:,}, unpacked."
                    )
                digest.update(line)
                _add(history, line, number, options)
    except DAMAGED as error:
        raise ImportRejected(f"The history is damaged, or was cut off: {error}.") from error
    if not history.steps:
        raise ImportRejected("The history has no metric.")
    history.digest = digest.hexdigest()
    return history


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        is_packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    if is_packed:
        return cast("BinaryIO", io.BufferedReader(gzip.open(path, "rb")))
    return path.open("rb")


def _add(history: _History, line: bytes, number: int, options: WandbOptions) -> None:
    """Add one row; for a metric that a step reports twice the later value counts."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ImportRejected(f"Line {number} is no JSON: {error}.") from error
    step = row.get("step") if isinstance(row, dict) else None
    if type(step) is not int or not 0 <= step <= MAX_STEP or not is_metrics(row.get("metrics")):
        raise ImportRejected(
            f"Line {number} must have a `step` up to {MAX_STEP:,}, and `metrics`: at most"
            f" {MAX_METRICS:,} names with numbers."
        )
    history.num_values += len(row["metrics"])
    is_own = any(map(OWN_EVAL.fullmatch, row["metrics"]))
    for name, value in row["metrics"].items():
        if is_own and name.startswith(EVAL):
            # A run of this service has them under the decoding that they are of.
            continue
        decoding, own = place_of_metric(name, options.decoding)
        place = history.steps[step]
        target = place.train if decoding is None else place.evals[decoding]
        target[own] = float(value)
        if (env := _ENV.fullmatch(own)) and env[1] not in NO_ENVIRONMENT:
            history.env_keys |= {env[1]} if ENV_KEY_PATTERN.fullmatch(env[1]) else set()
    if len(history.steps) > MAX_STEPS or history.num_values > MAX_VALUES:
        raise ImportRejected(
            f"The history has more than {MAX_STEPS:,} steps or {MAX_VALUES:,} values."
        )
