"""Reads a split that somebody published, in the forms in which such tables are exported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from hillclimb.datasets.format.rows import DatasetError
from hillclimb.datasets.split.policies import PublishedPolicy

_NAMES: dict[str, Literal["train", "eval"]] = {
    "train": "train",
    "training": "train",
    "eval": "eval",
    "evaluation": "eval",
    "validation": "eval",
    "val": "eval",
    "test": "eval",
}


def read_published(document: object) -> PublishedPolicy:
    """Return the policy that follows a table, parsed from JSON.

    The table is `{"KEY": "train" | "eval", …}`, or `{"train": ["KEY", …], "eval": ["KEY", …]}`, or
    `[{"key": "KEY", "split": "train" | "eval"}, …]`. `validation`, `val` and `test` mean eval;
    `task_key` and `data_split` are read too; a row `excluded` is one that the table does not name.

    Raises:
        DatasetError: the document has another form, or a key is in both splits.
    """
    splits: dict[str, Literal["train", "eval"]] = {}
    for key, name in _pairs(document):
        if name == "excluded":
            continue
        split = _NAMES.get(name) if isinstance(name, str) else None
        if not isinstance(key, str) or not key or split is None:
            raise DatasetError(
                f"a published split gives each task key a split among {', '.join(_NAMES)}, and"
                f" here {str(key)[:60]!a} has {str(name)[:60]!a}"
            )
        if splits.setdefault(key, split) != split:
            raise DatasetError(f"the published split has {key!a} in both train and eval")
    if not splits:
        raise DatasetError("the published split names no task")
    return PublishedPolicy(splits=splits)


def _pairs(document: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(document, dict) and all(isinstance(keys, list) for keys in document.values()):
        for name, keys in document.items():
            yield from ((key, name) for key in keys)
    elif isinstance(document, dict):
        yield from document.items()
    elif isinstance(document, list) and all(isinstance(row, dict) for row in document):
        for row in document:
            yield row.get("key") or row.get("task_key"), row.get("split") or row.get("data_split")
    else:
        raise DatasetError(
            'a published split is {"KEY": "train", …}, {"train": ["KEY", …], "eval": […]} or'
            ' [{"key": "KEY", "split": "train"}, …]'
        )
