"""`plan` on every preset, and on what is unsupported or too large: answer, reason, remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from api.admission.planning import check
from api.clusters.errors import NoEligibleHardware
from api.runs.errors import ModelUnsupported
from hillclimb.hardware.presets.presets import presets
from hillclimb.spec.run import RunSpec
from tests.hillclimb.hardware.rented import qwen3_8b

COMMIT = "0" * 40
H100 = {"infra": "lambda", "accelerators": "H100:8"}
TWO_H100 = {"infra": "lambda", "accelerators": "H100:2"}
FOUR_H100 = {"infra": "lambda", "accelerators": "H100:4"}
HALVES = {"engine": {"data_parallel_size": 4}, "placement": {"learner_ranks": 4}}
APIECE = {"engine": {"data_parallel_size": 1}, "placement": {"learner_ranks": 1}}


def model(name: str) -> dict[str, Any]:
    """A spec of that model with the positions it has."""
    return {"model": {"source": f"hf:{name}@{COMMIT}", "rope": None}, "length": 32_768}


def yarn(factor: float) -> dict[str, Any]:
    """Qwen3-8B with its positions stretched."""
    rope = {"factor": factor, "original_max_position_embeddings": 32_768}
    return {"model": {"rope": rope}, "length": int(32_768 * factor)}


@dataclass(frozen=True, slots=True)
class Refused:
    """A spec that no machine can carry out."""

    make: Callable[[], RunSpec]
    why: str
    remedy: str


def on(*machines: Mapping[str, Any], **sections: Any) -> Callable[[], RunSpec]:
    return lambda: qwen3_8b(*map(dict, machines), **sections)


REFUSED = {
    # One line changes once the trainer computes such models.
    "a mixture of experts": Refused(
        on(H100, **model("openai/gpt-oss-120b")), "mixture of experts", "Qwen3.5 (4B to 27B)"
    ),
    "hybrid attention": Refused(
        on(H100, **model("Qwen/Qwen3-Next-80B-A3B-Instruct")),
        "linear attention",
        "use a dense model such as",
    ),
    "a hybrid whose ranks share sequences": Refused(
        on(
            H100,
            **model("Qwen/Qwen3.5-9B"),
            engine={"data_parallel_size": 4},
            placement={"learner_ranks": 4},
            learner={"context_parallel_size": 2},
        ),
        "in layers of linear attention",
        "set it to 1",
    ),
    "images": Refused(
        on(H100, **model("Qwen/Qwen3-VL-8B-Instruct")), "only text is trained", "use a text model"
    ),
    "quantised weights": Refused(
        on(H100, **model("Qwen/Qwen3-8B-AWQ")), "are quantised", "the model that it was made from"
    ),
    "a trillion parameters": Refused(
        on(H100, **model("moonshotai/Kimi-K2-Instruct")), "mixture of experts", "Tinker protocol"
    ),
    "another family": Refused(
        on(H100, **model("google/gemma-3-4b-it")), "family is not supported", "use Qwen3"
    ),
    "longer than its positions": Refused(
        on(H100, model={"rope": None}),
        "larger than the model's 40960 positions",
        "extend them with model.rope",
    ),
    "all of 8B beside one engine": Refused(
        on(TWO_H100, **APIECE), "a rank of the learner needs", "learner.lora {}"
    ),
    "262k on four ranks": Refused(
        on(H100, **yarn(8.0), **HALVES),
        "a rank of the learner needs",
        "rollout.max_sequence_length",
    ),
    "all of 32B": Refused(
        on(H100, **(model("Qwen/Qwen3-32B") | HALVES)),
        "a rank of the learner needs",
        "engine.tensor_parallel_size 2, learner.cpu_offload true",
    ),
    "72B in a GPU": Refused(
        on(H100, **(model("Qwen/Qwen2.5-72B-Instruct") | HALVES)),
        "cannot hold one rollout",
        "engine.tensor_parallel_size",
    ),
    "float32": Refused(
        on(H100, engine={"dtype": "float32"}), "engine.dtype is float32", "set it to bfloat16"
    ),
    "a rate for the tiny model": Refused(
        on(H100, optimizer={"lr": 2.5e-4}), "optimizer.lr is 0.00025", "set it to 1e-05 or less"
    ),
    "an engine over three GPUs": Refused(
        on(H100, engine={"tensor_parallel_size": 3, "data_parallel_size": 1}),
        "does not divide the model into equal parts",
        "use one of 1, 2, 4, 8",
    ),
    "more workers than GPUs": Refused(
        on(FOUR_H100, **HALVES), "need 8 GPUs", "lower one of them or raise"
    ),
    "GPUs without experimental": Refused(
        on(H100, experimental=False), "on GPUs was never run", "set experimental to true"
    ),
}

TOO_LARGE = ("all of 8B beside one engine", "262k on four ranks", "all of 32B", "72B in a GPU")


def refusal_of(make: Callable[[], RunSpec]) -> str:
    """Return what `plan` refuses a spec with; empty where it takes it."""
    try:
        check(make())
    except (ValidationError, ModelUnsupported, NoEligibleHardware) as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_carried_out_is_refused_with_reason_and_remedy(case: str) -> None:
    sentence = refusal_of(REFUSED[case].make)
    assert REFUSED[case].why in sentence
    assert REFUSED[case].remedy in sentence


@pytest.mark.parametrize("case", REFUSED)
def test_only_what_is_too_large_is_told_to_fit_and_shown_the_memory(case: str) -> None:
    """A setting that no machine makes right is named by itself, without a page of arithmetic."""
    sentence = refusal_of(REFUSED[case].make)
    is_too_large = "it does not fit" in sentence
    assert is_too_large == ("disk of a node:" in sentence)
    assert is_too_large == (case in TOO_LARGE)


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_taken(name: str) -> None:
    assert refusal_of(lambda: RunSpec.model_validate(presets()[name].spec)) == ""
