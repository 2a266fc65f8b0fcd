"""Changes of an app's state, and their comparison with the changes that a task expects.

As in Fleet's verifiers, the final state is graded by its difference from the seed: each expected
change must be there once, and nothing else may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from hillclimb.minifleet.framework.world import Scalar, Table

Change = dict[str, JsonValue]


def inserted(table: str, **row: JsonValue) -> Change:
    """Return the change "one new row"; the value `{"any": [...]}` accepts each listed value."""
    return {"op": "insert", "table": table, "row": row}


def updated(table: str, row_id: Scalar, **row: JsonValue) -> Change:
    """Return the change "these fields of this row, and no others, have these new values"."""
    return {"op": "update", "table": table, "id": str(row_id), "row": row}


def deleted(table: str, row_id: Scalar) -> Change:
    """Return the change "this row is gone"."""
    return {"op": "delete", "table": table, "id": str(row_id)}


def difference(seed: Mapping[str, Table], current: Mapping[str, Table]) -> list[Change]:
    """Return every change from `seed` to `current`, without the ids of new rows."""
    changes: list[Change] = []
    for name, before in seed.items():
        after = current[name]
        changes += [deleted(name, key) for key in before if key not in after]
        for key, row in after.items():
            old = before.get(key)
            if old is None:
                changes.append(inserted(name, **_without_id(row)))
            elif old != row:
                new = {field: value for field, value in row.items() if old.get(field) != value}
                changes.append(updated(name, key, **new))
    return changes


def match_changes(
    expected: Sequence[Change], actual: Iterable[Change]
) -> tuple[list[Change], list[Change], list[Change]]:
    """Match changes in any order; return those met, missing and unexpected."""
    extra = list(actual)
    met: list[Change] = []
    missing: list[Change] = []
    for expectation in expected:
        match = next((change for change in extra if _satisfies(expectation, change)), None)
        if match is None:
            missing.append(expectation)
        else:
            met.append(expectation)
            extra.remove(match)
    return met, missing, extra


def explain_mismatch(expected: Sequence[Change], actual: Iterable[Change]) -> str | None:
    """Return the first mismatch as a sentence; None for the same changes in any order."""
    _, missing, extra = match_changes(expected, actual)
    if missing:
        return f"missing: {missing[0]['op']} in {missing[0]['table']}"
    if extra:
        return f"unexpected: {extra[0]['op']} in {extra[0]['table']}"
    return None


def _without_id(row: Mapping[str, Scalar]) -> dict[str, JsonValue]:
    return {field: value for field, value in row.items() if field != "id"}


def _satisfies(expectation: Change, change: Change) -> bool:
    if any(expectation.get(part) != change.get(part) for part in ("op", "table", "id")):
        return False
    expected, actual = expectation.get("row", {}), change.get("row", {})
    if (
        not isinstance(expected, dict)
        or not isinstance(actual, dict)
        or expected.keys() != actual.keys()
    ):
        return False
    return all(_accepts(value, actual[field]) for field, value in expected.items())


def _accepts(expected: JsonValue, value: JsonValue) -> bool:
    if isinstance(expected, dict):
        choices = expected["any"]
        return isinstance(choices, list) and value in choices
    return expected == value
