"""What a rejected spec is told: each mistake once, where it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from trainer.contract.problems import PLANNED, explain
from trainer.contract.spec import RunSpec


def pointers(**sections: Any) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({"name": "x", "data": {"env_keys": ["booking"]}, **sections})
    return [problem.pointer for problem in explain(refused.value)]


def on_skypilot(*candidates: dict[str, Any]) -> dict[str, Any]:
    return {"type": "skypilot", "skypilot": {"candidates": list(candidates)}}


def test_a_wrong_item_is_not_told_a_second_time_as_a_list_without_items() -> None:
    where = "/backend/skypilot/candidates"
    assert pointers(backend=on_skypilot({"infra": "mars", "cpus": 4})) == [f"{where}/0"]
    assert pointers(backend=on_skypilot()) == [where]


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
