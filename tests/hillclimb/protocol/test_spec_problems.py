"""What a rejected spec is told: each mistake once, where it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from trainer.contract.problems import ELSEWHERE, PLANNED, explain
from trainer.contract.spec import RunSpec


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
    *sections, key = path.split("/")
    spec: dict[str, Any] = {"name": "x"}
    inner = spec
    for each in sections:
        inner = inner.setdefault(each, {})
    inner[key] = "x"
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate(spec)
    told = {each.pointer: each.message for each in explain(refused.value)}[f"/{path}"]
    assert ELSEWHERE[path] in told


@pytest.mark.parametrize("path", sorted(PLANNED))
def test_what_is_planned_is_not_there_yet(path: str) -> None:
    model: type[BaseModel] | None = RunSpec
    for key in path.split("/"):
        assert model is not None
        if key not in model.model_fields:
            return
        inner = model.model_fields[key].annotation
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    pytest.fail(f"{path} is a key of the spec")
