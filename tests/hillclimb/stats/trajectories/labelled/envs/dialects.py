"""The dialects that scripts draw from."""

from __future__ import annotations

import json
import random
from typing import cast

from tests.hillclimb.stats.trajectories.labelled.envs.dialect import Dialect, Form, as_it_is, rows

PLAIN = Dialect()


def _envelope(text: str) -> str:
    return json.dumps({"ok": True, "error": None, "data": rows(text)})


def _status(text: str) -> str:
    return json.dumps({"status": 200, "errors": [], "result": rows(text)})


def _contents(text: str) -> str:
    return json.dumps({"content": [{"type": "text", "text": text}], "isError": False})


def _indented(text: str) -> str:
    return json.dumps(rows(text), indent=2)


def _headed(text: str) -> str:
    return f"Tool result:\n{text}"


def _bullets(text: str) -> str:
    listed = rows(text)
    if not isinstance(listed, list):
        return text
    pairs = cast("list[dict[str, object]]", listed)
    lines = (", ".join(f"{key} {value}" for key, value in row.items()) for row in pairs)
    return "\n".join(f"- {line}" for line in lines)


def _prefixed(text: str) -> str:
    return f"Error: {text}"


def _object(text: str) -> str:
    return json.dumps({"error": text})


def _not_ok(text: str) -> str:
    return json.dumps({"ok": False, "error": {"message": text}})


SUCCESSES: tuple[Form, ...] = (_envelope, _status, _contents, _indented, _headed, _bullets)
FAILURES: tuple[Form, ...] = (_prefixed, _object, _not_ok)
NULL_ERRORS: tuple[Form, ...] = (_envelope, _status, _contents)
"""Forms of a success that have a place for an error, which is empty."""

SPELLINGS = (
    "{}_id",
    "{}Id",
    "{}_ref",
    "{}_key",
    "{}_number",
    "{}_code",
    "{}_uuid",
)


def any_dialect(rng: random.Random) -> Dialect:
    """Return a dialect without identifiers of its own; most often the apps' own."""
    if rng.random() < 0.6:
        return PLAIN
    success = rng.choice(SUCCESSES)
    if rng.random() < 0.5:
        return Dialect(name=success.__name__, success=success)
    failure = rng.choice(FAILURES)
    return Dialect(name=failure.__name__, success=success, failure=failure, marks_errors=False)


def imported(rng: random.Random) -> Dialect:
    """Return a dialect of a dump that has text only: nothing is marked."""
    return Dialect(
        name="imported",
        success=rng.choice((*SUCCESSES, as_it_is, as_it_is)),
        failure=rng.choice(FAILURES),
        marks_errors=False,
    )


def naming(rng: random.Random, *, marks_errors: bool = True) -> Dialect:
    """Return a dialect whose arguments name things by identifiers."""
    return Dialect(
        name="naming",
        spells=rng.choice(SPELLINGS),
        under=rng.choice((None, None, None, "target", "body")),
        failure=rng.choice(FAILURES),
        marks_errors=marks_errors,
    )
