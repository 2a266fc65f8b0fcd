from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.protocol.events import EVENTS, NUMBERING, IngestBatch, RunWarning

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def a_warning() -> dict[str, Any]:
    return RunWarning(step=1, code="c", message="m").numbered(3, NOW).model_dump(mode="json")


def test_a_numbered_event_is_read_back() -> None:
    event = EVENTS.validate_python(a_warning())
    assert (event.trainer_seq, event.at, event.step) == (3, NOW, 1)


@pytest.mark.parametrize("name", NUMBERING)
def test_an_event_without_its_number_or_its_time_is_refused(name: str) -> None:
    event = a_warning()
    del event[name]
    with pytest.raises(ValidationError, match=f"the event has no {name}"):
        EVENTS.validate_python(event)
    with pytest.raises(ValidationError, match=f"the event has no {name}"):
        IngestBatch.model_validate({"events": [event]})


def test_an_event_numbered_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        EVENTS.validate_python({**a_warning(), "trainer_seq": 0})


def test_the_schema_requires_the_numbering() -> None:
    schema = EVENTS.json_schema()["$defs"]["RunWarning"]
    assert set(NUMBERING) <= set(schema["required"])
    assert not any("default" in schema["properties"][name] for name in NUMBERING)
