"""Our own learner beside a server: from one adapter and one batch, the gradients of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tinker import types

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import tiny_model
from tests.trainer.learners.recorded import recorded_batches
from tests.trainer.workers.tinker.server.local import RANK
from trainer.algo.sequences import Batch
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.tinker_server.model.base import ALPHA
from trainer.workers.tinker.datum import data_of, loss_of
from trainer.workers.tinker.learner import TinkerLearner

ADAPTER = "adapter/adapter_model.safetensors"
OPTIMIZER = OptimizerSpec(lr=1e-2, max_grad_norm=None, weight_decay=0.01)
STEEP = 1e4
"""Learning rate and eps of a step without momentum, which then moves by the gradient itself."""
_FACTOR = "base_model.model.{}"
_AT_ONE: list[Batch] = [
    Batch(
        mini_batches=tuple(
            tuple(each for each in part if each.temperature == 1.0) for part in each.mini_batches
        )
    )
    for each in recorded_batches(12)
]
STEPS = [each for each in _AT_ONE if all(each.mini_batches)][:5]
"""Five recorded steps of one or two mini-batches, drawn at the temperature that servers score."""


def our_learner(algorithm: AlgorithmSpec) -> LearnerRank:
    """The same adapter as a server's: same rank, scale and layers; of ours the same seed too."""
    learner = LearnerSpec.model_validate({"lora": {"rank": RANK, "alpha": ALPHA}})
    options = LearnerOptions(
        algorithm=algorithm,
        optimizer=OPTIMIZER,
        learner=learner,
        total_steps=10,
        max_sequence_length=200,
        seed=5,
    )
    return LearnerRank(tiny_model(), options)


def factors_of(learner: LearnerRank) -> dict[str, torch.nn.Parameter]:
    """What is trained, by its names in peft's files."""
    return {
        _FACTOR.format(name.replace(".default", "")): each
        for name, each in learner._models.trained.items()
    }


def take_adapter(learner: LearnerRank, tensors: Mapping[str, torch.Tensor]) -> None:
    """Let our learner go on from an adapter in peft's form."""
    factors = factors_of(learner)
    assert factors.keys() == tensors.keys()
    with torch.no_grad():
        for name, each in factors.items():
            each.to_local().copy_(tensors[name])


def gradient_of(learner: LearnerRank, of: Batch) -> dict[str, torch.Tensor]:
    """Of our learner's loss, by each factor of the adapter."""
    learner._optimizer.zero_grad(set_to_none=True)
    for micro in learner._pack(of.mini_batches[0]):
        learner._backward(learner._with_other_policies(micro))
    return {name: each.grad.full_tensor() for name, each in factors_of(learner).items()}


def adapter_of(learner: TinkerLearner, directory: Path) -> dict[str, torch.Tensor]:
    """The adapter as the server has it now."""
    learner.begin_save(directory)()
    return load_file(directory / ADAPTER)


def step_along_gradient(learner: TinkerLearner, of: Batch, algorithm: AlgorithmSpec) -> None:
    """Let the server move each factor by minus its gradient.

    Without momentum and with a large eps, Adam moves by lr / eps times the gradient.
    """
    client, loss = learner._training, loss_of(algorithm)
    data = data_of(of.mini_batches[0], replace(learner._data, algorithm=algorithm))
    client.forward_backward(data, loss.name, loss.config).result(learner._service.timeout_s)
    steep = types.AdamParams(learning_rate=STEEP, beta1=0.0, beta2=0.0, eps=STEEP)
    client.optim_step(steep).result(learner._service.timeout_s)


def flat(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """All of them in one vector, in the order of their names."""
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors)])


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """1 where both point the same way."""
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0))
