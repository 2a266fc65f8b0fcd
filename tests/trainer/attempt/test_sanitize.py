"""Half a surrogate pair, wherever a server may put one, is stored as a question mark."""

from __future__ import annotations

import json

import pytest

from trainer import errors
from trainer.contract.events import EVENTS, RunWarning
from trainer.envs.base import ToolSpec
from trainer.envs.fleet.faults import of_response
from trainer.storable import storable

HALF = "cut \ud83d"


@pytest.mark.parametrize(
    "kind",
    [
        each
        for each in vars(errors).values()
        if isinstance(each, type)
        and issubclass(each, (errors.TrainerError, errors.RolloutError))
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
    assert storable("bad \U0001f600") == "bad \U0001f600"
