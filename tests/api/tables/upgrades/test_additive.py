"""Migrations after the first only add: code of the version before goes on with the new tables."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.fixtures.migrated import ROOT

FIRST = "1001"
ADDS = frozenset({"add_column", "bulk_insert", "create_index", "create_table", "f", "get_context"})
"""Operations that take nothing away: what they add is empty, or has a default (`breaks`)."""
REASONS = {
    ("1017", "alter_column"): "ts may be null from then on, which older code never wrote; seq is a"
    " column of the same migration, null nowhere because of its default",
    ("1017", "execute"): "copies a column into a new one, and names of channels out of the specs",
    ("1018", "execute"): "fills a new column: keys that exist came from the environment",
    ("1019", "create_foreign_key"): "of a new column",
    ("1023", "execute"): "fills a new column: who is a member already has accepted",
    ("1035", "drop_index"): "two new ones stand in their place; the older code has every row",
    ("1036", "drop_constraint"): "a check that no row of older code fails: it has locked the run",
}
"""Other operations, by revision, each with the reason why older code does not notice."""


def operations(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the operations of a migration's upgrade and of the functions beside it."""
    for part in ast.parse(source).body:
        if isinstance(part, ast.FunctionDef) and part.name == "downgrade":
            continue
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "op":
                yield node.attr, _call_of(part, node)


def _call_of(part: ast.AST, function: ast.Attribute) -> ast.Call:
    """Return the call of an operation; one that is handed on instead has no arguments to read."""
    for node in ast.walk(part):
        if isinstance(node, ast.Call) and node.func is function:
            return node
    return ast.Call(func=function, args=[], keywords=[])


def takes_away(revision: str, source: str) -> list[str]:
    """Return what a migration does that older code may notice, without those with a reason."""
    called = list(operations(source))
    created = {ast.unparse(call.args[0]) for name, call in called if name == "create_table"}
    odd = []
    for name, call in called:
        words = {each.arg: ast.unparse(each.value) for each in call.keywords}
        table = ast.unparse(call.args[1]) if name == "create_index" and len(call.args) > 1 else ""
        refuses_rows = words.get("unique") == "True" and table not in created
        if (name not in ADDS or refuses_rows) and (revision, name) not in REASONS:
            odd.append(f"{revision} op.{name}")
    return odd


def sources() -> dict[str, str]:
    files = sorted((ROOT / "migrations/versions").glob("*.py"))
    return {each.name.partition("_")[0]: each.read_text() for each in files}


def test_every_migration_after_the_first_only_adds() -> None:
    later = {revision: text for revision, text in sources().items() if revision != FIRST}
    assert [odd for revision, text in later.items() for odd in takes_away(revision, text)] == []


def test_every_reason_is_one_of_an_operation_that_is_there() -> None:
    there = {
        (revision, name) for revision, text in sources().items() for name, _ in operations(text)
    }
    assert set(REASONS) <= there


@pytest.mark.parametrize(
    "statement",
    [
        'op.drop_column("runs", "note")',
        'op.alter_column("runs", "name", new_column_name="title")',
        'op.alter_column("runs", "note", nullable=False)',
        'op.rename_table("runs", "jobs")',
        'op.execute("DELETE FROM runs")',
        'op.create_index("uq_runs_name", "runs", ["name"], unique=True)',
        'op.create_check_constraint("ck", "runs", "attempt < 9")',
        'for name in ("runs",):\n        op.drop_table(name)',
    ],
)
def test_what_takes_something_away_is_noticed(statement: str) -> None:
    assert takes_away("9001", f"def upgrade():\n    {statement}\n") != []


def test_what_a_function_beside_the_upgrade_does_counts_and_a_downgrade_does_not() -> None:
    beside = 'def upgrade():\n    _more()\n\n\ndef _more():\n    op.drop_table("runs")\n'
    assert takes_away("9001", beside) == ["9001 op.drop_table"]
    down = 'def upgrade():\n    pass\n\n\ndef downgrade():\n    op.drop_table("runs")\n'
    assert takes_away("9001", down) == []
