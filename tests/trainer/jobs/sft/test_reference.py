"""A warm start's update against plain torch: the same loss and the same gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as functional
from transformers import Qwen3ForCausalLM

from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.fixtures.tiny import random_ids, tiny_model
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.jobs.sft.encoding import imitated
from trainer.learners.inline import InlineLearner
from trainer.learners.model.models import LearnerOptions
from trainer.workers.factory import IMITATION

OPTIMIZER = OptimizerSpec(lr=1e-2, max_grad_norm=None)


def sequences() -> tuple[TrainingSequence, ...]:
    """Three conversations of several turns; the first two share their prompt."""
    shapes = [(9, 0b0011011), (9, 0b1000001), (5, 0b1111111)]
    prompt, found = random_ids(9, seed=1), []
    for index, (length, turns) in enumerate(shapes):
        tail = random_ids(7, seed=10 + index)
        mask = [False] * length + [bool(turns >> place & 1) for place in range(7)]
        found.append(imitated([*prompt[:length], *tail], mask, length))
    return tuple(found)


def by_hand(model: Qwen3ForCausalLM) -> torch.Tensor:
    """Sum the cross-entropy one conversation at a time, over the tokens that count."""
    losses = []
    for each in sequences():
        ids = torch.tensor([each.token_ids])
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
        own = torch.tensor(each.action_mask[1:])
        losses.append(functional.cross_entropy(logits[own], ids[0, 1:][own], reduction="none"))
    return torch.cat(losses).mean()


def learner(model: Qwen3ForCausalLM, max_micro_tokens: int) -> InlineLearner:
    return InlineLearner(
        model,
        LearnerOptions(
            algorithm=IMITATION,
            imitates=True,
            optimizer=OPTIMIZER,
            learner=LearnerSpec(max_micro_tokens=max_micro_tokens),
        ),
    )


@pytest.mark.parametrize("max_micro_tokens", [1024, 16])
async def test_loss_and_gradient_are_those_of_plain_torch_however_they_are_cut(
    max_micro_tokens: int,
) -> None:
    plain = tiny_model()
    loss = by_hand(plain)
    torch.autograd.backward(loss)
    ours = learner(tiny_model(), max_micro_tokens)
    metrics = await ours.step(Batch(mini_batches=(sequences(),)))
    assert metrics["policy/final_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["policy/num_action_tokens"] == 13.0
    found = {
        name: parameter.grad.full_tensor() for name, parameter in ours.rank._models.trained.items()
    }
    expected = {name: parameter.grad for name, parameter in plain.named_parameters()}
    assert len(found) == len(expected)
    for name, gradient in found.items():
        other = expected[name.removeprefix("causal_lm.")]
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-6)


async def test_tokens_of_the_environment_do_not_count() -> None:
    first = sequences()[0]
    longer = replace(
        first,
        token_ids=(*first.token_ids, 3, 4),
        action_mask=(*first.action_mask, False, False),
        logprobs=(*first.logprobs, 0.0, 0.0),
    )
    alone = await learner(tiny_model(), 1024).step(Batch(mini_batches=((first,),)))
    followed = await learner(tiny_model(), 1024).step(Batch(mini_batches=((longer,),)))
    assert alone["policy/final_loss"] == pytest.approx(followed["policy/final_loss"], rel=1e-6)
