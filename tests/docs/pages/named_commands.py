"""Commands and keys that a page names, compared with the command line and the spec."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from hillclimb.cli.commands import complete
from hillclimb.spec.run import RunSpec

ROOT = Path(__file__).resolve().parents[3]
SECTIONS = frozenset(RunSpec.model_fields)
FILES = frozenset({"md", "py", "json", "yaml", "yml", "toml", "txt", "js", "jsonl", "gz"})


def commands(text: str) -> list[str]:
    """Return every `hillclimb …` of a page, in code spans and in blocks."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S)
    prose = re.sub(r"^```[a-z]*\n.*?^```", "", text, flags=re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    spans = re.findall(r"`([^`\n]+)`", prose)
    cleaned = (each.removeprefix("$ ").strip() for each in (*lines, *spans))
    return [each for each in cleaned if each.startswith("hillclimb ")]


def fault(line: str) -> str | None:
    """Return what the command line does not know of a command, or null."""
    words = shlex.split(line.partition("  #")[0].partition(" | ")[0].partition(" > ")[0])[1:]
    command: click.Command = complete()
    while words and isinstance(command, click.Group):
        if words[0].startswith("-"):
            break
        found = command.commands.get(words[0])
        if found is None:
            return f"{line}: no command {words[0]!r}"
        command, words = found, words[1:]
    known = {"--help", "-h", "--version"}
    known |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and _name(word) not in known]
    return f"{line}: no option {unknown}" if unknown else None


def _name(word: str) -> str:
    return word.partition("=")[0]


def keys(text: str) -> Iterator[str]:
    """Yield the dotted keys of a spec that a page names in code spans."""
    for span in re.findall(r"`([^`\n]+)`", text):
        head = re.match(r"[a-z_]+(\.[a-z_]+)+", span)
        if head is None or head[0].rpartition(".")[2] in FILES:
            continue
        if head[0].partition(".")[0] in SECTIONS:
            yield head[0]


def is_key(dotted: str) -> bool:
    """Return True if a spec may have the key."""
    schema = RunSpec.model_json_schema()
    place = [schema]
    for part in dotted.split("."):
        place = [inner for each in place for inner in _inside(schema, each, part)]
    return bool(place)


def _inside(schema: dict, node: dict, part: str) -> list[dict]:  # type: ignore[type-arg]
    options = [node, *node.get("anyOf", ()), *node.get("allOf", ()), *node.get("oneOf", ())]
    resolved = [
        schema["$defs"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        for each in options
    ]
    inner = [each["properties"][part] for each in resolved if part in each.get("properties", {})]
    items = [each["items"] for each in resolved if isinstance(each.get("items"), dict)]
    nested = [found for each in items for found in _inside(schema, each, part)]
    deeper = [
        found
        for each in resolved
        if each is not node and ("anyOf" in each or "oneOf" in each)
        for found in _inside(schema, each, part)
    ]
    return [*inner, *nested, *deeper]
