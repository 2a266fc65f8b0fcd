"""Inputs that nobody would write, for readers that must answer each of them with a sentence.

Hypothesis tries a few hundred and shrinks what it finds; the seeded `junk` here is a hundred times
faster, and every run of the suite tries `NUM_JUNK` of it. Raise either by the environment:
`HILLCLIMB_FUZZ_EXAMPLES=10000 HILLCLIMB_FUZZ_JUNK=1000000`.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import settings

from hillclimb.datasets.read.raw import FIELDS, METADATA_FIELDS

fuzzed = settings(max_examples=int(os.environ.get("HILLCLIMB_FUZZ_EXAMPLES", "50")), deadline=None)
NUM_JUNK = int(os.environ.get("HILLCLIMB_FUZZ_JUNK", "2500"))

_NAMES = [*(name for names in FIELDS.values() for name in names), *METADATA_FIELDS, "tasks", "x"]
_TEXTS = [
    *("", " ", "a", "t1", "booking", "booking:v1", ":", "github", "tool_use", "Ünïcode\u2028"),
    *("\ud800", "a\udfffb", "\0", "line\nbreak", "x" * 600, "null", "[" * 2000, '{"a":1}', '{"a":'),
    *('"\\ud83d"', "NaN", "9" * 5000, "\U0001f600", "March 5", '{"A": {"B": [1]}}'),
]
_NUMBERS: list[Any] = [
    *(0, 1, 2, 3, -1, 2.0, 1.5, 10**18, 2**63, -(2**63), 10**30, 1e308, -0.0, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), True, False, None),
]


def junk_values(seed: int) -> Iterator[Any]:
    """Yield `NUM_JUNK` values as a JSON parser could return them."""
    rng = random.Random(seed)
    for _ in range(NUM_JUNK):
        yield _row(rng) if rng.random() < 0.8 else _value(rng, 0)


def junk_files(seed: int) -> Iterator[bytes]:
    """Yield `NUM_JUNK` files: well-formed ones, cut, spliced and overwritten ones, and noise."""
    rng = random.Random(seed)
    for _ in range(NUM_JUNK):
        data = _file(rng).encode("utf-8", "surrogatepass")
        for _ in range(rng.choice((0, 1, 1, 2, 8))):
            at = rng.randrange(len(data) + 1)
            to = min(len(data), at + rng.choice((0, 0, 1, 3, 50)))
            data = data[:at] + rng.choice(_SPLICES) + data[to:]
        yield data


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """Cut a file where no writer would."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 1, 5))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


_SPLICES = [
    *(
        b"",
        b"",
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b",",
        b":",
        b"\\",
        b"\n",
        b"\xff",
        b"\xed\xa0\x80",
        b"1e9",
    ),
    *(
        b"-",
        b"nul",
        b"NaN",
        b"\xef\xbb\xbf",
        b'{"tasks": [',
        b"\0",
        b"\\ud800",
        b"9" * 4400,
        b"[" * 3000,
    ),
]


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if kind < 0.35 or depth > 6:
        return rng.choice(_TEXTS)
    if kind < 0.6:
        return rng.choice(_NUMBERS)
    if kind < 0.65:
        nested: Any = 1
        for _ in range(rng.choice((5, 31, 32, 33, 400))):
            nested = [nested] if rng.random() < 0.5 else {"n": nested}
        return nested
    if kind < 0.8:
        return [_value(rng, depth + 2) for _ in range(rng.randrange(4))]
    return {rng.choice(_TEXTS): _value(rng, depth + 2) for _ in range(rng.randrange(4))}


def _row(rng: random.Random) -> Any:
    row: dict[str, Any] = {"key": f"t{rng.randrange(5)}", "prompt": "Do it.", "env_key": "github"}
    for _ in range(rng.randrange(4)):
        row[rng.choice(_NAMES)] = _value(rng, 0)
    return row


def _file(rng: random.Random) -> str:
    rows = [_row(rng) if rng.random() < 0.8 else _value(rng, 0) for _ in range(rng.randrange(4))]
    indent, ascii_only = rng.choice((None, 1)), rng.random() < 0.5
    if rng.random() < 0.3:
        return "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    document: Any = rng.choice((rows, {"tasks": rows}, {"v": 1, "tasks": rows, "w": None}))
    return json.dumps(document, indent=indent, ensure_ascii=ascii_only)
