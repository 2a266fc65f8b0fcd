"""From one adapter and the same recorded rollouts, SkyRL's server learns what our learner learns.

The protocol returns no gradients. A step without momentum and with a large eps moves the weights by
the gradient, and the adapters before and after it are in SkyRL's archives. SkyRL has q, k and v in
one layer, and gate and up: their first factors are one tensor there, whose gradient is the sum of
ours. Where HILLCLIMB_TINKER_FIGURES names a folder, the figures are written there.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker", reason="the data plane's environment runs this: `make e2e`")

import torch
from safetensors.torch import load_file

from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.stack.system.ports import find_free
from tests.e2e.tinker.skyrl_server import FIGURES, MARKS, skyrl_server
from tests.trainer.fixtures.scripted import byte_tokenizer
from tests.trainer.fixtures.tiny import random_ids
from tests.trainer.learners.recorded import batch
from tests.trainer.workers.tinker.comparison import (
    ADAPTER,
    OPTIMIZER,
    STEPS,
    adapter_of,
    cosine,
    flat,
    gradient_of,
    our_learner,
    step_along_gradient,
    take_adapter,
)
from tests.trainer.workers.tinker.server.local import make_learner, open_service, write_model
from trainer.workers.tinker.datum import data_of, loss_of
from trainer.workers.tinker.learner import TinkerLearner

pytestmark = MARKS
ANSWER_S = 500.0
VARIANTS: Mapping[str, dict[str, Any]] = {
    "token_mean": {},
    "sequence_mean": {"loss_reduction": "sequence_mean"},
    "seq_mean_token_sum_norm": {"loss_reduction": "seq_mean_token_sum_norm"},
    "cispo": {"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_high": 0.5}},
    "narrow clips": {"eps_clip_low": 0.01, "eps_clip_high": 0.02},
}


@dataclass(slots=True)
class Measured:
    """What the tests found."""

    advantages: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, dict[str, float]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    found = Measured()
    yield found
    if target := os.environ.get(FIGURES):
        figures = {
            "server": "skyrl 0.3.0, jax on a CPU",
            "sdk": "tinker 0.24.1",
            "rollouts": batch().num_sequences,
            "advantages_abs_diff_max": found.advantages,
            "gradients": found.gradients,
        }
        path = Path(target) / "tinker_skyrl_agreement.json"
        path.write_text(json.dumps(figures, indent=2) + "\n")


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerLearner]:
    """One adapter for all tests, as SkyRL made it."""
    root = tmp_path_factory.mktemp("skyrl")
    model = write_model(root / "model")
    byte_tokenizer().save(str(model / "tokenizer.json"))
    with skyrl_server(model, root / "state", port=find_free()) as url:
        service = open_service(
            url, base_model=str(model), losses="averaged", call_timeout_s=ANSWER_S
        )
        yield make_learner(service, optimizer=OPTIMIZER)
        service.close()


@pytest.fixture(scope="module")
def trained(learner: TinkerLearner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the same adapter after two steps: its second factors are no longer 0."""
    directory = tmp_path_factory.mktemp("trained")

    async def train() -> None:
        for each in STEPS[:2]:
            await learner.step(each)

    asyncio.run(train())
    learner.begin_save(directory)()
    return directory


def test_each_token_is_given_the_advantage_that_it_has_with_our_learner(
    learner: TinkerLearner, measured: Measured
) -> None:
    algorithm = AlgorithmSpec()
    (rollouts,) = batch().mini_batches
    loss, data = loss_of(algorithm), data_of(rollouts, learner._data)
    answer = learner._training.forward(data, loss.name, loss.config).result(ANSWER_S)
    sent: list[torch.Tensor] = []
    taken: list[torch.Tensor] = []
    for rollout, datum, output in zip(rollouts, data, answer.loss_fn_outputs, strict=True):
        drawn = torch.tensor(rollout.action_mask[1:])
        advantages, behaviour = (
            datum.loss_fn_inputs[name].to_torch() for name in ("advantages", "logprobs")
        )
        now, losses = (output[name].to_torch() for name in ("logprobs", "elementwise_loss"))
        # The policy is still the one that sampled: no ratio is at its bounds.
        gains = -losses / (now - behaviour).exp()
        of_server = len(rollouts) * (len(rollout.token_ids) - 1)
        assert not gains[~drawn].any()
        sent.append(advantages[drawn].double() / of_server)
        taken.append(gains[drawn].double() / of_server)
    ours = torch.cat([each.actions.advantages_A for each in our_learner(algorithm)._pack(rollouts)])
    (share,) = {
        each.item()
        for micro in our_learner(algorithm)._pack(rollouts)
        for each in micro.actions.weights_A.unique()
    }
    for name, shares in (("sent", sent), ("taken", taken)):
        theirs = torch.cat(shares) / share
        gap = (theirs.sort().values - ours.double().sort().values).abs().max()
        measured.advantages[name] = float(gap)
    assert measured.advantages["sent"] < 1e-6
    # As SkyRL computed with them: its losses, divided by ratios of log-probs in float32.
    assert measured.advantages["taken"] < 1e-5


@pytest.mark.parametrize("variant", VARIANTS)
async def test_the_gradient_is_that_of_our_learner(
    learner: TinkerLearner, trained: Path, measured: Measured, tmp_path: Path, variant: str
) -> None:
    algorithm, ids = AlgorithmSpec.model_validate(VARIANTS[variant]), random_ids(40, seed=3)
    learner.load(trained)
    before = load_file(trained / ADAPTER)
    ours = our_learner(algorithm)
    take_adapter(ours, before)
    score_gap = (await learner.logprobs(ids) - ours.logprobs(ids)).abs().max()
    gradients = gradient_of(ours, batch())
    step_along_gradient(learner, batch(), algorithm)
    after = adapter_of(learner, tmp_path)
    shared = shared_factors(before)
    gradient = flat({own[0]: sum(gradients[name] for name in own) for own in shared})
    moved = flat({own[0]: after[own[0]].double() - before[own[0]].double() for own in shared})
    found = {
        "cosine": cosine(gradient, -moved),
        "length_ratio": float(moved.norm() / gradient.norm()),
        "length": float(gradient.norm()),
        "logprobs_abs_diff_max": float(score_gap),
    }
    measured.gradients[variant] = found
    assert found["logprobs_abs_diff_max"] < 1e-4
    assert found["cosine"] >= 0.9999
    assert found["length_ratio"] == pytest.approx(1.0, rel=1e-3)
    assert found["length"] > 0.1
    # In each of two layers: A of q, k and v, A of gate and up, A of o and of down, and seven B.
    assert len(shared) == 2 * (1 + 1 + 2 + 7)


def shared_factors(adapter: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """The names of each of the server's tensors: several where layers have it in common."""
    found: list[list[str]] = []
    for name, tensor in sorted(adapter.items()):
        owners = [own for own in found if torch.equal(adapter[own[0]], tensor)]
        if owners:
            owners[0].append(name)
        else:
            found.append([name])
    return found
