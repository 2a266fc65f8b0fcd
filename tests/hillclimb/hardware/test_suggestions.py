"""What is offered to a run that does not fit can be written into its spec as it stands."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hillclimb.client.spec_file import assign
from hillclimb.hardware.plan import hardware_plan
from hillclimb.spec.run import RunSpec
from tests.hillclimb.hardware.rented import qwen3_8b

H100X4 = {"infra": "lambda", "accelerators": "H100:4"}
SHARED = {
    "engine": {
        "weight_transport": "ipc",
        "data_parallel_size": 4,
        "gpu_memory_utilization": 0.7,
    },
    "placement": {"type": "auto", "learner_ranks": 4},
}
SPLIT = {"engine": {"data_parallel_size": 5}, "placement": {"learner_ranks": 3}}
FEW = {"engine": {"data_parallel_size": 2}, "placement": {"learner_ranks": 2}}
OPEN = {
    "engine": {"type": "auto", "weight_transport": "auto", "data_parallel_size": 2},
    "placement": {"learner_ranks": 2},
}
LARGER = {
    "model": {"source": f"hf:Qwen/Qwen3-32B@{'0' * 40}", "rope": None},
    "length": 32_768,
    "engine": {"data_parallel_size": 4},
    "placement": {"learner_ranks": 4},
}
"""Neither engine nor rank has room for it."""
FLOATS = {"learner": {"policy_dtype": "float32"}}


@pytest.mark.parametrize(
    ("machines", "sections", "offers"),
    [
        ((), SPLIT, "max_sequence_length"),
        ((), FLOATS, "learner.policy_dtype"),
        ((), {"model": {"rope": None}}, "max_sequence_length 40960"),
        ((H100X4,), SHARED, "placement.type ray"),
        ((H100X4,), OPEN, "engine.type vllm"),
        ((H100X4,), FEW, "learner.lora {}"),
        ((), LARGER, "engine.tensor_parallel_size 2"),
    ],
)
def test_each_alone_makes_a_spec_that_is_taken(
    machines: tuple[dict[str, Any], ...], sections: dict[str, Any], offers: str
) -> None:
    spec = qwen3_8b(*machines, **sections)
    refused = hardware_plan(spec)
    assert refused is not None
    (suggestions,) = (each.suggestions for each in refused.candidates)
    assert any(offers in each for each in suggestions), suggestions
    for words in suggestions:
        changed = spec.model_dump(mode="json")
        for key, value in re.findall(r"([a-z]+[.][a-z_]+) ([^, ]+)", words):
            assign(changed, f"{key}={value}")
        plan = hardware_plan(RunSpec.model_validate(changed))
        assert plan is not None
        assert plan.refusal is None, words


def test_a_division_is_the_busiest_and_names_only_what_is_new() -> None:
    plan = hardware_plan(qwen3_8b(**LARGER))
    assert plan is not None
    (suggestion,) = plan.candidates[0].suggestions
    assert suggestion == (
        "another division of the GPUs: engine.data_parallel_size 2, engine.tensor_parallel_size 2,"
        " learner.cpu_offload true"
    )
    few = hardware_plan(qwen3_8b(H100X4, **FEW))
    assert few is not None
    words = few.candidates[0].suggestions
    assert not any("division" in each and "data_parallel_size 2" in each for each in words), words
    assert sum("learner.lora" in each for each in words) == 1, "once is enough"
