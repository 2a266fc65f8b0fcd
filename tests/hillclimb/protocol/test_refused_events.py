"""A placeholder is made of any line that has a number, however broken the rest is."""

import json

import pytest

from hillclimb.protocol.events import EVENTS, EXCERPT_CHARACTERS
from hillclimb.protocol.refused_events import refuse
from tests.fixtures import factories as make


def test_a_placeholder_keeps_number_time_step_and_type() -> None:
    event = make.step(7, 3)
    made = refuse(event.model_dump_json().encode(), trainer_seq=7, message="Too large.")
    assert (made.trainer_seq, made.at, made.step) == (7, event.at, 3)
    assert (made.refused_type, made.message) == ("step.completed", "Too large.")
    assert made.excerpt.startswith('{"schema_version":1')


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'{"torn',
        b"\xff\xfe\x00",
        b'{"type": 5, "at": "never", "step": -1}',
        json.dumps({"type": "x" * 9_000, "at": None, "step": 2**40}).encode(),
        b'{"type": "a\\u0000b", "step": 1e400, "at": "0000-01-01"}',
        b'{"type": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_it_can_be_read_again_and_is_small(line: bytes) -> None:
    made = refuse(line, trainer_seq=2, message="m" * 9_000)
    written = made.model_dump_json()
    assert EVENTS.validate_json(written) == made
    assert made.step == 0
    assert made.size_bytes == len(line)
    assert len(made.excerpt) <= EXCERPT_CHARACTERS
    assert len(written) < 10_000
