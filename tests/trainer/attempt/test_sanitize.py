"""Half a surrogate pair, wherever a server may put one, is stored as a question mark."""

from __future__ import annotations

import json

import pytest

from hillclimb.environment import errors as rollout_errors
from hillclimb.environment.base import ToolSpec
from hillclimb.environment.sanitize import sanitize_unicode
from hillclimb.protocol.events import EVENTS, RunWarning
from trainer import errors
from trainer.envs.fleet.wire.faults import of_response

HALF = "cut \ud83d"


@pytest.mark.parametrize(
    "kind",
    [
        each
        for each in (*vars(errors).values(), *vars(rollout_errors).values())
        if isinstance(each, type)
        and issubclass(each, (errors.TrainerError, rollout_errors.RolloutError))
        and each is not errors.StepTimeout  # its words are its own
    ],
)
def test_what_an_error_says_can_be_told(kind: type[Exception]) -> None:
    said = str(kind(HALF))
    assert said == "cut ?"
    told = RunWarning(trainer_seq=1, at="2026-01-01T00:00:00Z", step=0, code="x", message=said)
    assert EVENTS.validate_json(EVENTS.dump_json(told)) == told


def test_a_tool_that_is_named_by_halves_can_be_put_into_a_prompt() -> None:
    tool = ToolSpec(
        name="go \udc00",
        description=HALF,
        parameters={"type": "object", "properties": {"\ud83d": {"enum": ["ja", "né", "\udc00"]}}},
    )
    assert (tool.name, tool.description) == ("go ?", "cut ?")
    assert tool.parameters["properties"] == {"?": {"enum": ["ja", "né", "?"]}}
    json.dumps(dict(tool.parameters), ensure_ascii=False).encode()


def test_a_platforms_refusal_can_be_told() -> None:
    fault = of_response(503, {}, b'{"detail": {"message": "bad \\ud800"}}')
    assert fault.message == "bad ?"
    assert sanitize_unicode("bad \U0001f600") == "bad \U0001f600"
