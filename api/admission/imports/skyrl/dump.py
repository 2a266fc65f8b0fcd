"""Reads SkyRL's dumps from a zip: one evaluation per step, its rollouts as files to store."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast
from zipfile import ZipFile

from api.admission.imports.errors import ImportRejected
from api.admission.imports.metrics import MAX_METRICS, is_metrics
from api.admission.imports.skyrl.options import SkyRLOptions
from api.results.artifacts.exports.skyrl_export import aggregated_key
from hillclimb.blobs.archive.zip_file import UNREADABLE
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.protocol.rundir import TRAJECTORIES
from hillclimb.spec.section import ENV_KEY_FORM, ENV_KEY_PATTERN
from hillclimb.stats.trajectories.skyrl.layout import AGGREGATED, DumpPlace, place_of
from hillclimb.stats.trajectories.skyrl.metrics import Reward
from hillclimb.stats.trajectories.skyrl.rollouts import DumpedRollout, outcome_row, stored_line
from hillclimb.stats.trajectories.skyrl.rows import MAX_LINE_BYTES, DumpRejected, parse_row

MAX_FILES = 4_000
MAX_ROLLOUTS = 50_000
"""Rollouts of one import."""
MAX_ROLLOUTS_OF_STEP = 10_000
"""Rollouts of one evaluation, as of a run of the service."""
MAX_METRICS_BYTES = 1 << 20
GZIP_LEVEL = 3
READ_BYTES = 1 << 18


@dataclass(slots=True, kw_only=True)
class DumpedEval:
    """One step of a dump."""

    step: int
    outcomes: list[OutcomeRow] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=list)
    """What SkyRL's own metrics are computed from."""
    metrics: dict[str, float] | None = None
    """The step's `aggregated_results.jsonl`; None without one."""


@dataclass(slots=True, kw_only=True)
class Dump:
    """The content of a dump; the files are keyed relative to the run."""

    evals: dict[int, DumpedEval] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    num_rollouts: int = 0

    def at(self, step: int) -> DumpedEval:
        """Return the evaluation of a step, which is added if it is new."""
        return self.evals.setdefault(step, DumpedEval(step=step))

    @property
    def env_keys(self) -> tuple[str, ...]:
        """Environments that have rollouts, sorted."""
        return tuple(sorted({o.env_key for each in self.evals.values() for o in each.outcomes}))


def dump_digests(archive: ZipFile) -> dict[str, str]:
    """Return the SHA-256 of each file of a dump, by its path there.

    Raises:
        ImportRejected: a member has another name, or is damaged.
    """
    digests: dict[str, str] = {}
    for place, name in dump_places(archive):
        digest = hashlib.sha256()
        with _refused(name), archive.open(name) as member:
            while block := member.read(READ_BYTES):
                digest.update(block)
        digests[place.path] = digest.hexdigest()
    return digests


@contextmanager
def _refused(name: str) -> Iterator[None]:
    try:
        yield
    except DumpRejected as error:
        raise ImportRejected(f"{error}.") from error
    except UNREADABLE as error:
        raise ImportRejected(f"{name} is damaged: {error}.") from error


def read_dump(archive: ZipFile, folder: Path, options: SkyRLOptions) -> Dump:
    """Return the dump in a zip; its rollouts are written to files in the folder.

    Raises:
        ImportRejected: a member has another name, or a line is no row; the message names it.
    """
    dump = Dump()
    for place, name in dump_places(archive):
        with _refused(name), archive.open(name) as member:
            lines = cast("BinaryIO", io.BufferedReader(member, READ_BYTES))
            if place.is_aggregated:
                _read_metrics(dump, place, lines, folder)
            else:
                _read_rollouts(dump, place, lines, folder, options)
    return dump


def dump_places(archive: ZipFile) -> list[tuple[DumpPlace, str]]:
    """Return the members by step and name; raises ImportRejected for any other name."""
    members = [each.filename for each in archive.infolist() if not each.is_dir()]
    if not members or len(members) > MAX_FILES:
        raise ImportRejected(
            f"The zip has {len(members):,} files, and a dump has 1 to {MAX_FILES:,}."
        )
    places: dict[DumpPlace, str] = {}
    for name in members:
        place = place_of(name)
        if place is None:
            raise ImportRejected(
                f"{name[:200]!r} is no file of a dump: the names are"
                f" global_step_N/ENVIRONMENT.jsonl and global_step_N/{AGGREGATED}.jsonl."
            )
        if not place.is_aggregated and not ENV_KEY_PATTERN.fullmatch(place.name):
            raise ImportRejected(f"{name[:200]!r} names no environment: {ENV_KEY_FORM}.")
        if place in places:
            raise ImportRejected(f"{place.path} is there twice: {places[place]} and {name}.")
        places[place] = name
    return sorted(places.items(), key=lambda item: (item[0].step, item[0].name))


def _read_metrics(dump: Dump, place: DumpPlace, lines: BinaryIO, folder: Path) -> None:
    text = lines.read(MAX_METRICS_BYTES + 1)
    if len(text) > MAX_METRICS_BYTES:
        raise ImportRejected(f"{place.path} has more than {MAX_METRICS_BYTES:,} bytes.")
    try:
        metrics = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImportRejected(f"{place.path} is no line of JSON: {error}.") from error
    if not is_metrics(metrics):
        raise ImportRejected(
            f"{place.path} must be one object of names and numbers, at most {MAX_METRICS:,}."
        )
    dump.at(place.step).metrics = {name: float(value) for name, value in metrics.items()}
    target = folder / f"{place.step}.json"
    target.write_bytes(text)
    dump.files[aggregated_key(place.step)] = target


def _read_rollouts(
    dump: Dump,
    place: DumpPlace,
    lines: BinaryIO,
    folder: Path,
    options: SkyRLOptions,
) -> None:
    name = f"step-{place.step:06d}-eval-{options.decoding}-{place.name}.jsonl.gz"
    evaluation, target = dump.at(place.step), folder / name
    with gzip.GzipFile(target, "wb", compresslevel=GZIP_LEVEL, mtime=0) as file:
        for index, rollout in enumerate(_rollouts(place, lines, options)):
            dump.num_rollouts += 1
            if len(evaluation.outcomes) >= MAX_ROLLOUTS_OF_STEP:
                raise ImportRejected(
                    f"Step {place.step} has more than {MAX_ROLLOUTS_OF_STEP:,} rollouts."
                )
            if dump.num_rollouts > MAX_ROLLOUTS:
                raise ImportRejected(
                    f"The dump has more than {MAX_ROLLOUTS:,} rollouts: import fewer steps at once."
                )
            key = f"{TRAJECTORIES}/{name}"
            row = outcome_row(rollout, file=key, line=index, threshold=options.pass_threshold)
            evaluation.outcomes.append(row)
            evaluation.rewards.append(
                Reward(env_key=row.env_key, task_key=row.task_key, value=rollout.row.reward)
            )
            file.write(stored_line(rollout))
    dump.files[f"attempt-1/{TRAJECTORIES}/{name}"] = target


def _rollouts(place: DumpPlace, lines: BinaryIO, options: SkyRLOptions) -> Iterator[DumpedRollout]:
    samples: Counter[str] = Counter()
    number = 0
    while line := lines.readline(MAX_LINE_BYTES + 1):
        number += 1
        where = f"{place.path} line {number}"
        if not line.strip():
            raise DumpRejected(f"{where} is empty")
        row = parse_row(line, place=where)
        rollout = DumpedRollout(
            row=row,
            line=line.decode().removesuffix("\n"),
            step=place.step,
            decoding=options.decoding,
            sample_index=samples[row.task_key],
        )
        if rollout.env_key != place.name:
            raise DumpRejected(f"{where}: data_source is {row.data_source!r}, another file's")
        samples[row.task_key] += 1
        yield rollout
