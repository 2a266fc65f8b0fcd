"""The pages of the documentation as they are packaged: Markdown by name, and their list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "docs"
MAX_ABOUT = 200
NO_SENTENCE = "|#<!-"
"""First characters of tables, headings, comments, code, images and lists."""
FIRST = ("tutorial", "agents", "agents/SKILL", "spec", "cli", "api", "runbook")
"""Pages that the list names first."""
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


@lru_cache
def pages() -> dict[str, DocumentationPage]:
    """Return every page by name; requests choose among these and never name a path."""
    paths = [path for path in FOLDER.rglob("*.md") if path.is_file()]
    names = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in paths}
    return {name: _read(name, path) for name, path in sorted(names.items(), key=_place)}


def llms_txt(base_url: str) -> str:
    """Return the list of pages as llms.txt (llmstxt.org), with absolute links."""
    links = [
        f"- [{each.title}]({base_url}/docs/{each.name}.md): {each.about}"
        for each in pages().values()
    ]
    schema = f"- [OpenAPI document]({base_url}/openapi.json): every route"
    return "\n".join(
        ["# Hillclimb", "", f"> {INTRODUCTION}", "", "## Docs", "", *links, schema, ""]
    )


def _place(item: tuple[str, Path]) -> tuple[int, str]:
    name = item[0]
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def _read(name: str, path: Path) -> DocumentationPage:
    text = path.read_text()
    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    title = re.search(r"^# (.+)$", body, re.MULTILINE)
    rest = body[title.end() :] if title else body
    parts = [each.strip() for each in rest.split("\n\n")]
    paragraph = next((each for each in parts if each and each[0] not in NO_SENTENCE), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
    sentence = re.split(r"(?<=\.)\s", plain, maxsplit=1)[0].rstrip(":")
    return DocumentationPage(
        name=name,
        title=title.group(1) if title else name,
        about=sentence[:MAX_ABOUT],
        text=text,
    )
