"""Heavy reads of versions: lint under other options, and the difference between two."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.datasets import blobs
from api.datasets.work.process import JobLimits, run_job
from api.tables import DatasetVersion
from hillclimb.blobs.base import BlobStore
from hillclimb.datasets.format.files import SPLIT, TASKS
from hillclimb.datasets.lint import build_version
from hillclimb.datasets.lint.lint import LintOptions
from hillclimb.datasets.lint.tool_tokens import ToolCount


def lint(
    store: BlobStore,
    version: DatasetVersion,
    options: LintOptions,
    limits: JobLimits,
    *,
    measured: Mapping[str, ToolCount],
) -> list[dict[str, Any]]:
    """Return the lint findings of a version under these options, errors first.

    `measured` has token counts of tools from runs, for those that the options do not name.

    Raises:
        DatasetNotFound: the version's files are gone.
        DatasetTooLarge, DatasetsBusy: as `run_job`.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-dataset-") as name:
        folder = Path(name)
        _fetch_files(store, version, folder)
        job = {
            "options": options.model_dump(mode="json"),
            "made": [
                finding
                for finding in version.lint["findings"]
                if finding["code"] in build_version.CODES
            ],
            "measured": as_json(measured),
        }
        findings: list[dict[str, Any]] = run_job("lint", folder, job, limits)["findings"]
        return findings


def as_json(measured: Mapping[str, ToolCount]) -> dict[str, Any]:
    """Return the counts as JSON, for a job."""
    return {key: count.model_dump() for key, count in measured.items()}


def diff(
    store: BlobStore, before: DatasetVersion, after: DatasetVersion, limits: JobLimits
) -> dict[str, Any]:
    """Return the differences between two versions; raises as `lint`."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-dataset-") as name:
        folder = Path(name)
        _fetch_files(store, before, folder / "before")
        _fetch_files(store, after, folder / "after")
        return run_job("diff", folder, {}, limits)


def _fetch_files(store: BlobStore, version: DatasetVersion, folder: Path) -> None:
    for name in (TASKS, SPLIT):
        blobs.fetch(store, version.id, name, folder / name)
