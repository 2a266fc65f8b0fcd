"""Checks the words of the code: `docs/glossary.md`, names that are participles, opening words.

`python .ci/words.py` names each violation and exits with 1 if there is one. It reads files only.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("api", "worker", "hillclimb", "trainer")
GLOSSARY = ROOT / "docs" / "glossary.md"

PARTICIPLES = frozenset(
    ("given", "told", "held", "wanted", "asked", "kept", "said", "found", "shown", "taken")
)
"""Words that say what happened to a thing instead of what it is."""
FIELD_PHRASES = re.compile(
    r"not_found|held_out"  # HTTP 404; tasks kept from training
    rf"|(?:{'|'.join(sorted(PARTICIPLES))})_at$"  # a time, as in `created_at`: columns among them
)
"""Parts of names in which such a word is the field's own."""
OPENINGS = ("What", "Whether", "Who", "How", "Where", "When", "Which", "That", "Why")
"""First words of docstrings that name no thing of the field."""


def sources(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every tracked or new source file with its syntax tree."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *PACKAGES]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    for line in sorted(set(done.stdout.splitlines())):
        if line.endswith(".py") and (root / line).is_file():
            yield Path(line), ast.parse((root / line).read_text())


def terms(page: str) -> Iterator[tuple[str, str]]:
    """Yield each term with its place in the code, `module:symbol`."""
    for cells in _rows(page):
        if len(cells) == 4 and cells[2].startswith("`"):
            yield cells[0], cells[2].strip("`")


def retired(page: str) -> dict[str, str]:
    """Return the words (or several in a row) that names no longer use, with what replaced each."""
    section = page.partition("## Words that the code no longer uses")[2]
    rows = (cells for cells in _rows(section) if len(cells) == 2 and cells[0] != "instead of")
    return {word: cells[1] for cells in rows for word in cells[0].split(", ")}


def _rows(page: str) -> Iterator[list[str]]:
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names that a module gives: classes, functions, parameters, variables, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ExceptHandler | ast.alias):
            name = node.name if isinstance(node, ast.ExceptHandler) else node.asname
            if name:
                yield getattr(node, "lineno", 0), name


def parts(name: str) -> list[str]:
    """Split a name into its words: `RolloutBuffer` and `rollout_buffer` alike."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [part.lower() for part in spaced.split("_") if part]


def participles(name: str) -> set[str]:
    """Return the participles in a name, whatever its case, outside the field's own phrases."""
    words = FIELD_PHRASES.sub("", "_".join(parts(name)))
    return PARTICIPLES.intersection(words.split("_"))


def violations(root: Path) -> Iterator[str]:
    """Yield a sentence for each word that should be another one."""
    page = (root / "docs" / "glossary.md").read_text()
    defined = set()
    wrong = _wrong_words(retired(page))
    for path, tree in sources(root):
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for line, name in names(tree):
            defined.add(f"{module}:{name}")
            for sentence in wrong(name):
                yield f"{path}:{line} {sentence}"
        yield from _openings(path, tree)
    for term, place in terms(page):
        if place not in defined:
            yield f"docs/glossary.md: {term!r} names {place}, which is not there"


def _wrong_words(old: Mapping[str, str]) -> Callable[[str], tuple[str, ...]]:
    """Return what is wrong with a name; names recur, so each is looked at once."""

    @cache
    def wrong(name: str) -> tuple[str, ...]:
        spaced = f" {' '.join(parts(name))} "
        sentences = [
            f"{name!r}: the glossary says {new!r} instead of {word!r}"
            for word, new in old.items()
            if f" {word} " in spaced
        ]
        if participles(name):
            sentences.append(f"names a value {name!r}: use the noun of the thing")
        return tuple(sentences)

    return wrong


def _openings(path: Path, tree: ast.Module) -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text and text.split(maxsplit=1)[0].rstrip(",:") in OPENINGS:
            line = getattr(node, "lineno", 1)
            yield f"{path}:{line} a docstring opens with a pronoun: name the thing"


if __name__ == "__main__":
    sentences = list(violations(ROOT))
    print(*sentences, sep="\n", file=sys.stderr)
    print(f"words: {len(sentences)} to change")
    raise SystemExit(1 if sentences else 0)
