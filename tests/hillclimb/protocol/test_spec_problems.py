"""What a rejected spec is told: each mistake once, where it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.protocol.spec_problems import ELSEWHERE, PLANNED, SpecProblem, explain
from hillclimb.spec.run import RunSpec


def pointers(**sections: Any) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({"name": "x", "data": {"env_keys": ["booking"]}, **sections})
    return [problem.pointer for problem in explain(refused.value)]


def on_skypilot(*candidates: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"type": "skypilot", "skypilot": {"candidates": list(candidates)} | values}


def test_a_wrong_item_is_not_told_a_second_time_as_a_list_without_items() -> None:
    where = "/backend/skypilot/candidates"
    assert pointers(backend=on_skypilot({"infra": "mars", "cpus": 4})) == [f"{where}/0"]
    assert pointers(backend=on_skypilot()) == [where]


ON_LAMBDA = {"infra": "lambda", "accelerators": "H100:8"}


@pytest.mark.parametrize(
    ("sections", "meant"),
    [
        ({"bugdet": {"usd": 1}}, "budget"),
        ({"schedule": {"total_step": 3}}, "total_steps"),
        ({"budget": {"us": 1}, "backend": on_skypilot(ON_LAMBDA)}, "usd"),
        ({"backend": {"type": "tinker", "tinker": {"lora_rnk": 8}}}, "lora_rank"),
        ({"learner": {"lora": {"rnk": 8}}}, "rank"),
        ({"backend": on_skypilot({"infra": "lambda", "accelerator": "H100:8"})}, "accelerators"),
        ({"backend": on_skypilot(ON_LAMBDA, num_node=2)}, "num_nodes"),
        ({"environment": {"overrides": {"booking": {"max_turn": 3}}}}, "max_turns"),
        ({"environment": {"openenv": {"max_turns": {"ur": "http://127.0.0.1"}}}}, "url"),
    ],
)
def test_a_misspelt_key_is_told_the_one_that_is_meant_wherever_it_stands(
    sections: dict[str, Any], meant: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({"name": "x", "data": {"env_keys": ["booking"]}, **sections})
    (told,) = [each for each in explain(refused.value) if each.code == "unknown_key"]
    assert told.message.endswith(f"; did you mean {meant!r}?")


@pytest.mark.parametrize("path", sorted(ELSEWHERE))
def test_a_key_that_is_elsewhere_is_told_where(path: str) -> None:
    messages = {problem.pointer: problem.message for problem in _problems_with(path)}
    assert ELSEWHERE[path] in messages[f"/{path}"]


@pytest.mark.parametrize("path", sorted(PLANNED))
def test_a_planned_key_is_rejected_as_not_available(path: str) -> None:
    """Fails too where a key that the spec reads by now is still listed as planned."""
    assert [(problem.pointer, problem.code) for problem in _problems_with(path)] == [
        (f"/{path}", "not_available")
    ]


def _problems_with(path: str) -> tuple[SpecProblem, ...]:
    """Return the problems of a spec that is valid but for a value at `path`."""
    *sections, key = path.split("/")
    spec: dict[str, Any] = {"name": "x", "data": {"env_keys": ["booking"]}}
    inner = spec
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[key] = "x"
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate(spec)
    return explain(refused.value)
