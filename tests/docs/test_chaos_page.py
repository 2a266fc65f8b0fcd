"""The table of docs/chaos.md is the one of `make chaos`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.chaos.cells import CELLS, Part, Phase

PAGE = (Path(__file__).parents[2] / "docs/chaos.md").read_text()
AT_LEAST = 30


def table() -> Iterator[str]:
    """The rows that the page has to have."""
    blows: defaultdict[tuple[Part, Phase], list[str]] = defaultdict(list)
    for cell in CELLS:
        if cell.blow.value not in blows[cell.part, cell.phase]:
            blows[cell.part, cell.phase].append(cell.blow.value)
    yield f"| part | {' | '.join(Phase)} |"
    yield "|---" * (1 + len(Phase)) + "|"
    for part in Part:
        row = (", ".join(blows.get((part, phase), ["–"])) for phase in Phase)
        yield f"| {part.value.replace('-', ' ')} | {' | '.join(row)} |"


def test_the_table_of_the_page_is_that_of_the_cells() -> None:
    assert [line for line in PAGE.splitlines() if line.startswith("|")] == list(table())


def test_every_part_and_every_phase_is_hit() -> None:
    assert {cell.part for cell in CELLS} == set(Part)
    assert {cell.phase for cell in CELLS} == set(Phase)


def test_there_are_thirty_cells_with_names_of_their_own() -> None:
    names = [cell.name for cell in CELLS]
    assert len(names) == len(set(names)) >= AT_LEAST
