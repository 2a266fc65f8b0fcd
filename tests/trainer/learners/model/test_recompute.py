"""Whatever a layer keeps or computes again, the gradients are the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.tiny import tiny_model
from tests.trainer.learners.recorded import batch
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.recompute import RESULTS
from trainer.learners.rank import LearnerRank

STORED = LearnerSpec(max_micro_tokens=90, logprob_chunk_tokens=16)
AGAIN = STORED.model_copy(update={"activation_checkpointing": True})


class Counter(TorchDispatchMode):
    """Counts operations that are carried out, by a part of their name."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.counts = dict.fromkeys(names, 0)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        for name in self.counts:
            self.counts[name] += name in str(func) and "backward" not in str(func)
        return func(*args, **(kwargs or {}))


def gradients(spec: LearnerSpec) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Gradients of the recorded rollouts, and the operations that they took."""
    options = LearnerOptions(learner=spec, algorithm=AlgorithmSpec(use_kl_loss=False))
    rank = LearnerRank(tiny_model(), options)
    packed = rank._pack(batch().mini_batches[0])
    with Counter("scaled_dot_product", "aten.mm") as counter:
        for micro in packed:
            rank._backward(micro)
    found = {
        name: each.grad.full_tensor()  # type: ignore[union-attr]
        for name, each in rank._models.trained.items()
    }
    return found, counter.counts


@pytest.mark.parametrize("keep", RESULTS)
def test_gradients_are_those_of_stored_activations_bit_for_bit(keep: str) -> None:
    expected, once = gradients(STORED)
    found, counts = gradients(AGAIN.model_copy(update={"keep_activations": keep}))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    factor = 2 if keep == "none" else 1
    assert counts["scaled_dot_product"] == factor * once["scaled_dot_product"]
    assert (counts["aten.mm"] > once["aten.mm"]) is (keep != "matmuls")


def test_what_nothing_would_read_is_refused() -> None:
    with pytest.raises(ValueError, match=r"keep_activations is set, but it is read only where"):
        LearnerSpec(keep_activations="attention")
