"""What a run warned of, each thing once."""

from __future__ import annotations

import pytest

from hillclimb.cli.runs.runs import warning_lines
from hillclimb.protocol.payloads.events import EventPayload
from tests.hillclimb.client.payloads import event_payload


def warned(message: str, step: int | None) -> EventPayload:
    data = {"message": message} | ({} if step is None else {"step": step})
    return event_payload("run.warning", data)


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([], []),
        ([("a", None)], ["warning: a"]),
        (
            [("a", 3), ("b", 4), ("a", 9), ("a", 5)],
            ["warning (3 times, steps 3 to 9): a", "warning: b"],
        ),
        ([("a", 3), ("a", 3)], ["warning (2 times): a"]),
        ([("a", None), ("a", 3)], ["warning (2 times): a"]),
    ],
)
def test_the_same_warning_is_one_line(
    events: list[tuple[str, int | None]], lines: list[str]
) -> None:
    assert list(warning_lines([warned(*each) for each in events])) == lines
