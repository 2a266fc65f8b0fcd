"""Descriptions of datasets and versions for clients, as JSON."""

from __future__ import annotations

from typing import Any

from api.tables import Dataset, DatasetVersion
from hillclimb.protocol.payloads.datasets.versions import VersionPayload

SUMMARY = (
    "id",
    "number",
    "parent_id",
    "digest",
    "source",
    "num_tasks",
    "num_train",
    "num_eval",
    "size_bytes",
    "created_by",
    "created_at",
    "note",
)


def dataset_facts(dataset: Dataset, newest: DatasetVersion | None) -> dict[str, Any]:
    """Return a dataset with a summary of its newest version."""
    return {
        "object": "dataset",
        "id": dataset.id,
        "name": dataset.name,
        "num_versions": dataset.num_versions,
        "created_by": dataset.created_by,
        "created_at": dataset.created_at.isoformat(),
        "newest": version_summary(dataset, newest) if newest else None,
    }


def version_summary(dataset: Dataset, version: DatasetVersion) -> dict[str, Any]:
    """Return the summary of a version, for lists."""
    facts = {name: getattr(version, name) for name in SUMMARY}
    severities = [finding["severity"] for finding in version.lint["findings"]]
    return {
        "object": "dataset_version",
        "name": dataset.name,
        **facts,
        "created_at": version.created_at.isoformat(),
        "num_envs": len(version.facts["envs"]),
        "num_lint_errors": severities.count("error"),
        "num_lint_warnings": severities.count("warning"),
    }


def describe_version(dataset: Dataset, version: DatasetVersion) -> VersionPayload:
    """Return a version in full, as a payload."""
    return VersionPayload.model_validate(version_facts(dataset, version))


def version_facts(dataset: Dataset, version: DatasetVersion) -> dict[str, Any]:
    """Return a version in full: environments, options, exclusions, lint findings."""
    return version_summary(dataset, version) | {
        "options": version.options,
        **{name: _sorted(value) for name, value in version.facts.items()},
        "lint": version.lint["findings"],
    }


def _sorted(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Return an object sorted by name: JSONB does not keep the order."""
    return dict(sorted(value.items())) if isinstance(value, dict) else value
