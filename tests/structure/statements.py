"""Walks the statements of a syntax tree: definitions and imports are found without expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

PARTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where a statement, a handler or a case has others."""


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement; `ast.walk` visits ten times as many nodes and takes seconds."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in PARTS:
            waiting += getattr(node, part, ())
