"""Text that others wrote: answers of environments, lines of logs, names that a trainer reported.

A terminal obeys what it prints: a sequence of characters fills the clipboard, changes the title or
hides lines before it. Rich obeys brackets. Spreadsheets obey what begins like a formula. Nothing of
it is obeyed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

COLOURS = frozenset(
    {"bold", "dim", "red", "green", "yellow", "blue", "magenta", "cyan", "bold red", "bold green"}
)
"""Styles that cells of our own tables have."""
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}
"""A visible character for each that controls a terminal."""
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,40}m)")
_STYLED = re.compile(r"\[([a-z ]{1,20})\][^\[\]]*\[/\1\]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class PlainConsole(Console):
    """A console that shows control characters of what it prints, and sends only its own."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments with pictures of control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def visible(text: str) -> str:
    """Return the text with a picture of each character that would control a terminal."""
    return text if text.isprintable() else text.translate(_PICTURES)


def visible_lines(text: str) -> str:
    """Return lines of a log: their colours stay, and a return to the line's start begins a new one.

    Else a line could write over the ones before it.
    """
    whole = text.replace("\r\n", "\n").replace("\r", "\n")
    parts = _COLOUR.split(whole)
    return "".join(part if number % 2 else visible(part) for number, part in enumerate(parts))


def cell_markup(text: str) -> str:
    """Return a cell of a table as markup, in which only our own colours are."""
    parts, end = [], 0
    for match in _STYLED.finditer(text):
        if match[1] in COLOURS:
            parts += [escape(text[end : match.start()]), match[0]]
            end = match.end()
    return "".join([*parts, escape(text[end:])])


def csv_cell(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: with an apostrophe before one."""
    return f"'{text}" if text.startswith(_FORMULA) else text
