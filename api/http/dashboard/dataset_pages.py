"""Contents of the dataset pages, as plain values for their templates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from api.datasets import store
from api.datasets.exclusions import exclusion_facts
from api.datasets.reading.description import version_facts, version_summary
from api.tables import Dataset, DatasetVersion

MAX_VERSIONS = 50
MAX_ROWS = 200
"""Exclusions and changes that a page lists; the API has all of them."""
COUNTED = ("train", "eval", "unique_eval", "excluded", "with_current_date", "with_env_variables")
SEVERITY_TONES = {"error": "bad", "warning": "warn", "info": ""}


def list_contents(session: Session, datasets: Sequence[Dataset]) -> dict[str, Any]:
    """Return the contents of the list page: each dataset with its newest version, if any."""
    newest = store.newest_versions(session, datasets)
    return {
        "datasets": [
            {
                "name": each.name,
                "created_at": each.created_at,
                "num_versions": each.num_versions,
                "newest": version_summary(each, newest[each.id]) if each.id in newest else None,
            }
            for each in datasets
        ]
    }


def version_contents(
    session: Session, dataset: Dataset, version: DatasetVersion, *, now: datetime
) -> dict[str, Any]:
    """Return the contents of a version's page, with the current exclusions of its dataset."""
    facts = version_facts(dataset, version)
    envs = [{"env_key": key, **counts} for key, counts in facts["envs"].items()]
    in_force = store.list_exclusions(session, dataset, now=now)
    versions = store.list_versions(session, dataset, before=None, limit=MAX_VERSIONS)
    return {
        "version": facts,
        "created_at": version.created_at,
        "envs": envs,
        "sums": {name: sum(env[name] for env in envs) for name in COUNTED},
        "policy": _policy(facts["options"]),
        "findings": [each | {"tone": SEVERITY_TONES[each["severity"]]} for each in facts["lint"]],
        "num_repeated": sum(each["count"] for each in facts["duplicates"]),
        "exclusions": [exclusion_facts(each, now=now) for each in in_force[:MAX_ROWS]],
        "num_exclusions": len(in_force),
        "versions": [_line(dataset, each) for each in versions],
        "num_versions": dataset.num_versions,
        "options": json.dumps(facts["options"], indent=2, ensure_ascii=False),
    }


def diff_contents(diff: Mapping[str, Any], *, name: str, base: int, number: int) -> dict[str, Any]:
    """Return the contents of the page of a difference, its lists cut at `MAX_ROWS`."""
    groups = [
        ("moved", [_moved(task) for task in _first(diff, "moved")]),
        (
            "changed",
            [_line_of(task, ", ".join(task["fields"])) for task in _first(diff, "changed")],
        ),
        ("added", [_line_of(task, task["split"]) for task in _first(diff, "added")]),
        ("removed", [_line_of(task, task["split"]) for task in _first(diff, "removed")]),
    ]
    return {
        "dataset": name,
        "base": base,
        "number": number,
        "counts": diff["counts"],
        "unchanged": diff["unchanged"],
        "by_env": diff["by_env"],
        "groups": [
            {"kind": kind, "lines": lines, "num": diff["counts"][kind]}
            for kind, lines in groups
            if lines
        ],
    }


def _line(dataset: Dataset, version: DatasetVersion) -> dict[str, Any]:
    return version_summary(dataset, version) | {"at": version.created_at}


def _policy(options: Mapping[str, Any]) -> str:
    """Return the split policy as text: its name and its most important setting."""
    split = options.get("split", {})
    ratio = split.get("eval_ratio")
    name = str(split.get("policy", ""))
    return f"{name}, eval_ratio {ratio:g}" if ratio is not None else name


def _first(diff: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    first: list[dict[str, Any]] = diff[kind][:MAX_ROWS]
    return first


def _line_of(task: Mapping[str, Any], change: str) -> dict[str, Any]:
    return {"key": task["key"], "env_key": task["env_key"], "change": change}


def _moved(task: Mapping[str, Any]) -> dict[str, Any]:
    reason = f" ({task['reason']})" if task["reason"] else ""
    return _line_of(task, f"{task['before']} → {task['after']}{reason}")
