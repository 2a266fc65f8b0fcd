"""What a rejected spec is told: each mistake once, where it is."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from hillclimb.protocol.spec_problems import ELSEWHERE, PLANNED, SpecProblem, explain
from hillclimb.spec.rules.old_names import HYDRA_KEYS, WORKFLOW_INPUTS
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


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"schedule": {"total_steps": "10k"}},
            "'10k' cannot be used: write a whole number without a unit, such as 8",
        ),
        (
            {"rollout": {"n_samples_per_prompt": 2.5}},
            "2.5 cannot be used: write a whole number without a unit, such as 8",
        ),
        (
            {"rollout": {"temperature": "1,0"}},
            "'1,0' cannot be used: write a number with a decimal point and without a unit,"
            " such as 0.5",
        ),
        (
            {"data": {"env_keys": "booking"}},
            "'booking' cannot be used: write a list, such as [a, b]",
        ),
        (
            {"data": {"env_keys": ["bokking"]}},
            "unknown environment 'bokking' in data.env_keys: did you mean 'booking'? minifleet has"
            " booking, github, outlook, reddit, ticketmaster, fira, hubspot, zillow",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_the_form_that_does(
    sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({"name": "x", "data": {"env_keys": ["booking"]}, **sections})
    assert [each.message for each in explain(refused.value)] == [message]


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


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("modality", "tool_use", "set data.modality to tool_use"),
        ("env_key", "github", 'set data.env_keys to ["github"]'),
        ("env_key", "", "leave it out: data.env_keys without a value takes the default"),
        ("max_tasks", 4, "set data.max_tasks to 4"),
        ("cloud", "lambda", "--preset openenv-fleet-grpo --cloud lambda"),
        ("task_name", "openenv-fleet-grpo", "hillclimb submit --preset openenv-fleet-grpo"),
        ("model_name", "Qwen/Qwen3-8B", "set model.source to Qwen/Qwen3-8B"),
        ("max_steps", "50", "set schedule.total_steps to 50"),
        (
            "batch_size",
            8,
            "set schedule.train_batch_size to 8 and schedule.mini_batch_size to 8",
        ),
        ("n_samples_per_prompt", 4, "set rollout.n_samples_per_prompt to 4"),
        ("lr", "1e-6", "set optimizer.lr to 1e-06"),
        ("optimizer/learning_rate", 1e-6, "set optimizer.lr to 1e-06"),
        ("epochs", 20, "set schedule.epochs to 20"),
        ("data/env_key", "github", 'set data.env_keys to ["github"]'),
        ("environment/modality", "tool_use", "set data.modality to tool_use"),
        ("max_steps", "many", "set schedule.total_steps to many"),
    ],
)
def test_an_input_of_the_old_workflows_is_answered_with_its_key_and_value(
    path: str, value: Any, place: str
) -> None:
    (problem,) = [each for each in _problems_with(path, value) if each.code == "unknown_key"]
    assert problem.message.startswith(f"unknown key {path!r}: ")
    assert place in problem.message


def test_every_new_place_is_a_key_of_a_spec() -> None:
    places = [*WORKFLOW_INPUTS.values(), *HYDRA_KEYS.values()]
    keys = {key for place in places for key in place.keys}
    for key in sorted(keys):
        model: Any = RunSpec
        for part in key.split("."):
            assert part in model.model_fields, key
            annotation = model.model_fields[part].annotation
            inner = [
                each
                for each in (annotation, *get_args(annotation))
                if hasattr(each, "model_fields")
            ]
            model = inner[0] if inner else None


def test_sections_of_a_skyrl_configuration_are_answered_key_by_key() -> None:
    value = {"policy": {"model": {"path": "Qwen/Qwen3-8B"}}, "epochs": 20, "strategy": "fsdp2"}
    (problem,) = _problems_with("trainer", value)
    assert problem.message == (
        "unknown key 'trainer': trainer.policy.model.path: set model.source to Qwen/Qwen3-8B;"
        " trainer.epochs: set schedule.epochs to 20;"
        " hillclimb migrate FILE turns a SkyRL configuration into a spec"
    )


def _problems_with(path: str, value: Any = "x") -> tuple[SpecProblem, ...]:
    """Return the problems of a spec that is valid but for a value at `path`."""
    *sections, key = path.split("/")
    spec: dict[str, Any] = {"name": "x", "data": {"env_keys": ["booking"]}}
    inner = spec
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[key] = value
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate(spec)
    return explain(refused.value)
