"""What an episode changed, and whether that is exactly what was asked.

As in Fleet's verifiers, the final state is judged by its difference from the seed: each expected
change must be there once, and nothing else may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from trainer.envs.minifleet.world import Scalar, Table

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
    found: list[Change] = []
    for name, before in seed.items():
        after = current[name]
        found += [deleted(name, key) for key in before if key not in after]
        for key, row in after.items():
            old = before.get(key)
            if old is None:
                found.append(inserted(name, **_without_id(row)))
            elif old != row:
                new = {field: value for field, value in row.items() if old.get(field) != value}
                found.append(updated(name, key, **new))
    return found


def settle(
    expected: Sequence[Change], found: Iterable[Change]
) -> tuple[list[Change], list[Change], list[Change]]:
    """Match changes in any order; return those met, those missing and those nobody asked for."""
    extra = list(found)
    met: list[Change] = []
    missing: list[Change] = []
    for wanted in expected:
        match = next((change for change in extra if _satisfies(wanted, change)), None)
        if match is None:
            missing.append(wanted)
        else:
            met.append(wanted)
            extra.remove(match)
    return met, missing, extra


def complaint(expected: Sequence[Change], found: Iterable[Change]) -> str | None:
    """Return None when `found` is `expected` in any order, else one sentence saying what is off."""
    _, missing, extra = settle(expected, found)
    if missing:
        return f"missing: {missing[0]['op']} in {missing[0]['table']}"
    if extra:
        return f"unexpected: {extra[0]['op']} in {extra[0]['table']}"
    return None


def _without_id(row: Mapping[str, Scalar]) -> dict[str, JsonValue]:
    return {field: value for field, value in row.items() if field != "id"}


def _satisfies(wanted: Change, change: Change) -> bool:
    if any(wanted.get(part) != change.get(part) for part in ("op", "table", "id")):
        return False
    want, have = wanted.get("row", {}), change.get("row", {})
    if not isinstance(want, dict) or not isinstance(have, dict) or want.keys() != have.keys():
        return False
    return all(_accepts(value, have[field]) for field, value in want.items())


def _accepts(wanted: JsonValue, value: JsonValue) -> bool:
    if isinstance(wanted, dict):
        choices = wanted["any"]
        return isinstance(choices, list) and value in choices
    return wanted == value
