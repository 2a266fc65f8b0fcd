"""Markdown of values and of text that people wrote, which must not change the page around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`\n]+`)")
_SPECIAL = re.compile(r"([\\`\[\]<*|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK = re.compile(r"^(\s*)(#|>|[-+=]|\d+[.)])")
MAX_CELL = 300
"""Characters of a cell; a longer text ends in an ellipsis."""


def inline(text: str) -> str:
    """Return text as one line in which nothing but its `code` is Markdown."""
    one_line = " ".join(text.split())
    parts = _CODE.split(one_line)
    escaped = [part if index % 2 else _escaped(part) for index, part in enumerate(parts)]
    return _BLOCK.sub(r"\1\\\2", "".join(escaped))


def cell(text: str) -> str:
    """Return text for a cell of a table, where a pipe ends the cell even within code."""
    short = text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
    one_line = " ".join(short.split())
    parts = _CODE.split(one_line)
    return "".join(
        part.replace("|", "\\|") if index % 2 else _escaped(part)
        for index, part in enumerate(parts)
    )


def quoted(text: str) -> list[str]:
    """Return text of several lines as a block quote, in which nothing but `code` is Markdown."""
    return [f"> {inline(line)}" if line.strip() else ">" for line in text.strip().splitlines()]


def code(text: str) -> str:
    """Return text as code; backticks and line breaks in it become others."""
    return "`" + " ".join(text.replace("`", "'").split()) + "`"


def code_cell(text: str) -> str:
    """Return text as code in a cell."""
    return code(text).replace("|", "\\|")


def value_cell(value: object) -> str:
    """Return a value of a spec in a cell; null is a dash."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return code_cell(text if len(text) <= 60 else f"{text[:59]}…")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; columns whose name ends in `>` are aligned right."""
    names = [column.removesuffix(">") for column in columns]
    rules = ["---:" if column.endswith(">") else "---" for column in columns]
    return [_line(names), _line(rules), *map(_line, rows), ""]


def percent(share: float | None) -> str:
    """Return a share as `53.2 %`, or a dash."""
    return "–" if share is None else f"{100 * share:.1f} %"


def p_value(value: float | None) -> str:
    """Return a p-value with three decimals, or a dash."""
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
