"""Links, anchors and words of a Markdown page, as GitHub reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownPage:
    """`links`: targets of links and images as they are written; `anchors`: ids of its headings.

    `tags`: HTML without comments, which GitHub may hide.
    """

    links: tuple[str, ...]
    tags: tuple[str, ...]
    anchors: frozenset[str]
    headings: tuple[tuple[int, str], ...]
    """Level and text of each."""


@cache
def read_page(path: Path) -> MarkdownPage:
    """Parse a page; a skill's front matter is no part of it."""
    tokens = PARSER.parse(re.sub(r"\A---\n.*?\n---\n", "", path.read_text(), flags=re.DOTALL))
    headings = tuple(_headings(tokens))
    return MarkdownPage(
        links=tuple(_links(tokens)),
        tags=tuple(_tags(tokens)),
        anchors=frozenset(_anchors(text for _, text in headings)),
        headings=headings,
    )


def _links(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("link_open", "image"):
            yield str(token.attrGet("href") or token.attrGet("src"))
        yield from _links(token.children or [])


def _tags(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("html_inline", "html_block") and not token.content.startswith("<!--"):
            yield token.content
        yield from _tags(token.children or [])


def _headings(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            words = (each.content for each in inline.children or [] if each.type != "link_open")
            yield int(opening.tag[1]), "".join(words)


def _anchors(headings: Iterator[str]) -> Iterator[str]:
    """Yield GitHub's ids: lower case, without punctuation, hyphens for spaces, numbered repeats."""
    times: dict[str, int] = {}
    for text in headings:
        anchor = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        times[anchor] = times.get(anchor, -1) + 1
        yield anchor if times[anchor] == 0 else f"{anchor}-{times[anchor]}"
