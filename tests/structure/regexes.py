"""Finds every regex of the source by its syntax tree, and makes texts that may be slow for it.

Nothing of the project is run but module-level assignments that a regex may be built from.
"""

from __future__ import annotations

import ast
import importlib
import re
import string
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, TypeGuard

PACKAGES = ("api", "worker", "hillclimb", "trainer")
METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
FUNCTIONS = ("compile", *METHODS)
EVERY_WAY = ("fullmatch", "search")
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
USE = re.compile(rf"\.(?:{'|'.join(FUNCTIONS)})\b")
MAX_SAMPLES = 3
"""Samples of a part of a regex: one for each of its first alternatives."""


@dataclass(frozen=True)
class Regex:
    """A regex of the source."""

    file: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]
    """How it is applied; every way where that is not to be seen."""


@dataclass(frozen=True)
class Source:
    """One module: its tree, and the values of its assignments that can be evaluated alone."""

    path: Path
    tree: ast.Module

    @cached_property
    def values(self) -> dict[str, Any]:
        """What the module's assignments name, by what they need of `hillclimb`."""
        values: dict[str, Any] = {"re": re}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hillclimb."):
                with suppress(ImportError):  # the packages of another environment
                    module = vars(importlib.import_module(str(node.module)))
                    values |= {n.asname or n.name: module.get(n.name) for n in node.names}
            # A decorator may register its function: the command line then has it twice.
            is_plain = not getattr(node, "decorator_list", [])
            if is_plain and isinstance(node, ast.Assign | ast.AnnAssign | ast.FunctionDef):
                module_of_one, flags = ast.Module([node], []), annotations.compiler_flag
                with suppress(Exception):  # whatever needs more than these names
                    exec(compile(module_of_one, str(self.path), "exec", flags), values)
        return values

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree: it is looked through three times."""
        return list(ast.walk(self.tree))

    @property
    def compiled(self) -> Iterator[tuple[str, re.Pattern[Any]]]:
        """The module's own regexes, with the names that they are read by."""
        assigned = (node for node in self.tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
        names = {each.id for node in assigned for each in ast.walk(node) if _is_target(each)}
        for name in sorted(names & self.values.keys()):
            yield from (
                (name, one) for one in _flat(self.values[name]) if isinstance(one, re.Pattern)
            )

    def value_of(self, node: ast.expr) -> Any:
        """Return the value of an expression; raises what its evaluation does."""
        return eval(compile(ast.Expression(node), str(self.path), "eval"), self.values)


def _is_target(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, dict | tuple | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _flat(each)
    else:
        yield value


def read_sources(root: Path) -> list[Source]:
    """Return the modules that make a regex or use one."""
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    texts = ((path, path.read_text()) for path in paths)
    return [
        Source(path.relative_to(root), ast.parse(text)) for path, text in texts if USE.search(text)
    ]


def find_regexes(root: Path) -> tuple[list[Regex], list[str]]:
    """Return the regexes, and those made while a program runs as `file: expression`."""
    regexes: list[Regex] = []
    local: list[str] = []
    sources = read_sources(root)
    uses = _uses(sources)
    for source in sources:
        if not any(map(_is_call_of_re, source.nodes)):
            continue
        file, seen = str(source.path), set()
        for name, pattern in source.compiled:
            methods = tuple(sorted(uses.get(name, ()))) or EVERY_WAY
            regexes.append(Regex(file, pattern, methods))
            seen.add(pattern)
        for node in source.nodes:
            if not _is_call_of_re(node):
                continue
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Attribute)
            try:
                pattern = _pattern(source, node)
            except Exception:  # noqa: BLE001 - local variables
                local.append(f"{file}: {ast.unparse(node.args[0])}")
                continue
            if pattern not in seen:
                method = node.func.attr
                regexes.append(
                    Regex(file, pattern, EVERY_WAY if method == "compile" else (method,))
                )
    return regexes, local


def _is_call_of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in FUNCTIONS
    )


def _pattern(source: Source, call: ast.Call) -> re.Pattern[Any]:
    assert isinstance(call.func, ast.Attribute)
    flags = next((each.value for each in call.keywords if each.arg == "flags"), None)
    if flags is None and call.func.attr == "compile" and len(call.args) > 1:
        flags = call.args[1]
    pattern = source.value_of(call.args[0])
    if isinstance(pattern, re.Pattern):
        return pattern
    return re.compile(pattern, 0 if flags is None else source.value_of(flags))


def _uses(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return the methods of `re.Pattern` that are used of each name, anywhere."""
    uses: dict[str, set[str]] = {}
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = getattr(node.value, "id", getattr(node.value, "attr", ""))
                uses.setdefault(name, set()).add(node.attr)
    return uses


def attacks(regex: Regex, size: int) -> Iterator[Any]:
    """Yield texts of about `size` characters that make the regex try again and again.

    For each repetition in it: what may stand before it, its body many times, and an end that fits
    nothing; and also all of this many times, as each beginning may be read to the end of the text.
    """
    pattern = regex.pattern
    for before, body in _repetitions(parser.parse(pattern.pattern, pattern.flags)):
        for end in ("", "\n\x00"):
            for first, piece in ((before, body), ("", before + body), ("", before)):
                if piece:
                    text = first + piece * (size // len(piece)) + end
                    yield text.encode("latin-1", "replace") if _is_bytes(pattern) else text


def _is_bytes(pattern: re.Pattern[Any]) -> bool:
    return isinstance(pattern.pattern, bytes)


def _repetitions(tokens: Iterable[Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield each repetition: a text that may stand before it, and one of its bodies."""
    for code, value in tokens:
        for inner, is_repeated in _parts(code, value):
            if is_repeated:
                for body in _samples(inner):
                    yield before, body
            yield from _repetitions(inner, before)
        before += next(iter(_samples([(code, value)])), "")


def _parts(code: Any, value: Any) -> list[tuple[Iterable[Any], bool]]:
    """Return the parts of a token, each with whether it is repeated."""
    if code in REPEATS:
        return [(value[2], value[1] > 1)]
    if code is codes.SUBPATTERN:
        return [(value[3], False)]
    if code is codes.BRANCH:
        return [(branch, False) for branch in value[1]]
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [(value[1], False)]
    if code is codes.ATOMIC_GROUP:
        return [(value, False)]
    return []


def _samples(tokens: Iterable[Any]) -> list[str]:
    """Return a few texts that the tokens match, lookaround and references left out."""
    texts = [""]
    for code, value in tokens:
        more = _samples_of(code, value)
        texts = [text + each for text in texts for each in more][:MAX_SAMPLES] if more else texts
    return texts


def _samples_of(code: Any, value: Any) -> list[str]:
    if code in REPEATS:
        least, _, body = value
        return [each * least for each in _samples(body)] if least else []
    if code is codes.BRANCH:
        return [text for branch in value[1] for text in _samples(branch)[:1]][:MAX_SAMPLES]
    if code in (codes.SUBPATTERN, codes.ATOMIC_GROUP):
        return _samples(value[3] if code is codes.SUBPATTERN else value)
    single = {
        codes.LITERAL: lambda: [chr(value)],
        codes.NOT_LITERAL: lambda: ["y" if value == ord("x") else "x"],
        codes.ANY: lambda: ["x"],
        codes.IN: lambda: _members(value),
    }
    return single[code]() if code in single else []


def _members(items: Iterable[Any]) -> list[str]:
    """Return characters of a set: one of each kind that it contains."""
    kinds = ("a", "A", "0", " ", "_", "-", ".", "/", "'", '"', "\n", "\x1b", "[", ";", "<", "é")
    within = [each for each in kinds if _contains(items, each)]
    rest = (each for each in map(chr, range(256)) if _contains(items, each))
    return within[:MAX_SAMPLES] or list(islice(rest, 1))


def _contains(items: Iterable[Any], char: str) -> bool:
    number, is_negated, is_within = ord(char), False, False
    for code, value in items:
        if code is codes.NEGATE:
            is_negated = True
        elif code is codes.LITERAL:
            is_within |= number == value
        elif code is codes.RANGE:
            is_within |= value[0] <= number <= value[1]
        elif code is codes.CATEGORY:
            is_within |= _is_of(char, value)
    return is_within != is_negated


def _is_of(char: str, category: Any) -> bool:
    word = char.isalnum() or char == "_"
    digit, space = char in string.digits, char in string.whitespace
    return {
        codes.CATEGORY_DIGIT: digit,
        codes.CATEGORY_NOT_DIGIT: not digit,
        codes.CATEGORY_SPACE: space,
        codes.CATEGORY_NOT_SPACE: not space,
        codes.CATEGORY_WORD: word,
        codes.CATEGORY_NOT_WORD: not word,
    }[category]
