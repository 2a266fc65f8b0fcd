"""Names of a version's files in the blob store, defined only here.

Under `datasets/<version_id>/` are `tasks.jsonl.gz`, the canonical rows sorted by key, one per line,
and `split.jsonl.gz`, the split table in the same order. The SHA-256 of a file's unpacked lines is
the content hash or split hash returned by `prepare`. `lineage.jsonl.gz` records the uses of each
task in this version and all earlier ones, in the form of a split table: the next version needs no
other file of the past.
"""

from __future__ import annotations

PREFIX = "datasets"
TASKS = "tasks.jsonl.gz"
SPLIT = "split.jsonl.gz"
LINEAGE = "lineage.jsonl.gz"


def version_key(version_id: str, name: str) -> str:
    """Return the blob key of a file of a version."""
    return f"{PREFIX}/{version_id}/{name}"
