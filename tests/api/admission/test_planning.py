"""Plans: models and settings that are refused at submission, and GPUs that no worker uses."""

from __future__ import annotations

import pytest

from api.admission.planning import check
from api.runs.errors import ModelUnsupported
from tests.fixtures.factories import make_spec
from tests.hillclimb.hardware.rented import rented


def test_a_validation_uses_no_gpu() -> None:
    (warning,) = check(rented(kind="validate")).warnings
    assert warning == "8 GPUs are rented with H100:8 on lambda, and the run's workers take 0."


MOE = {"source": f"hf:openai/gpt-oss-120b@{'0' * 40}"}


@pytest.mark.parametrize("kind", ["train", "eval", "probe"])
def test_a_model_that_cannot_be_trained_is_refused_before_anything_is_rented(kind: str) -> None:
    with pytest.raises(ModelUnsupported, match=r"mixture of experts.* Remedy: use "):
        check(rented(kind=kind, model=MOE))


def test_a_run_that_loads_no_model_or_trains_it_elsewhere_may_name_it() -> None:
    check(rented(kind="validate", model=MOE))
    tinker = {"type": "tinker", "tinker": {"base_model": "openai/gpt-oss-120b"}}
    check(make_spec(model=MOE, backend=tinker, optimizer={"max_grad_norm": None}))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"learner": {"routing_replay": True}, "engine": {"type": "torch"}},
            "needs a model with experts",
        ),
        ({"rollout": {"max_sequence_length": 65_536}}, "rollout.max_sequence_length"),
        ({"learner": {"context_parallel_size": 3}, "placement": {"learner_ranks": 3}}, "heads"),
    ],
)
def test_settings_that_the_model_does_not_allow_are_refused_without_rented_machines_too(
    changed: dict[str, dict[str, object]], says: str
) -> None:
    own = {"model": {"source": "builtin:tiny-qwen3-a"}, "experimental": True}
    check(make_spec(**own))
    with pytest.raises(ModelUnsupported, match=says):
        check(make_spec(**own, **changed))
