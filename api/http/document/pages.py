"""The pages of the documentation as they are packaged: Markdown by name, and their list.

`docs/nav.yaml` is that list, in sections. The site that `make docs` builds has the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parents[3] / "docs"
NAV = FOLDER / "nav.yaml"
MAX_ABOUT = 200
NO_SENTENCE = "|#<!-"
"""First characters of tables, headings, comments, code, images and lists."""
INTRODUCTION = (
    "Training as a service for reinforcement learning of tool-use agents: a run spec in, verdicts"
    " on held-out tasks out, over REST, a typed client, a command line and MCP."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentationPage:
    """One page."""

    name: str
    """Its path below the folder, without `.md`."""
    title: str
    about: str
    """Its first sentence."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentationSection:
    """Pages of one purpose, in the order in which they are listed."""

    title: str
    about: str
    """For whom or when, as a sentence."""
    pages: tuple[DocumentationPage, ...]


@lru_cache
def sections() -> tuple[DocumentationSection, ...]:
    """Return the sections that have packaged pages: none where the folder is not installed."""
    if not NAV.is_file():
        return ()
    return tuple(
        DocumentationSection(
            title=each["section"],
            about=each["about"],
            pages=tuple(_read(name) for name in each["pages"]),
        )
        for each in yaml.safe_load(NAV.read_text())
        if "pages" in each
    )


@lru_cache
def pages() -> dict[str, DocumentationPage]:
    """Return every page by name; requests choose among these and never name a path."""
    return {page.name: page for section in sections() for page in section.pages}


def llms_txt(base_url: str) -> str:
    """Return the list of pages as llms.txt (llmstxt.org), with absolute links."""
    lines = ["# Hillclimb", "", f"> {INTRODUCTION}", ""]
    for section in sections():
        lines += [f"## {section.title}", ""]
        lines += [
            f"- [{each.title}]({base_url}/docs/{each.name}.md): {each.about}"
            for each in section.pages
        ]
        lines.append("")
    lines += ["## OpenAPI", "", f"- [OpenAPI document]({base_url}/openapi.json): every route", ""]
    return "\n".join(lines)


def _read(name: str) -> DocumentationPage:
    text = (FOLDER / f"{name}.md").read_text()
    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    title = re.search(r"^# (.+)$", body, re.MULTILINE)
    rest = body[title.end() :] if title else body
    parts = [each.strip() for each in rest.split("\n\n")]
    paragraph = next((each for each in parts if each and each[0] not in NO_SENTENCE), "")
    plain = re.sub(r"\[([^\[\]]+)\]\([^()]+\)", r"\1", " ".join(paragraph.split()))
    sentence = re.split(r"(?<=\.)\s", plain, maxsplit=1)[0].rstrip(":")
    return DocumentationPage(
        name=name,
        title=title.group(1) if title else name,
        about=sentence[:MAX_ABOUT],
        text=text,
    )
