"""A rank on a GPU over fake tensors: its passes with gradients, and which kernels they would call.

Fake tensors have a device, a type and a shape, and no values: what would not fit together on a GPU
fails here.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.families import TYPES, family_model
from trainer.algo.sequences import TrainingSequence
from trainer.learners import rank as rank_module
from trainer.learners.model import attention, models
from trainer.learners.model.kernels.varlen import VarlenLayout
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.scoring import token_logprobs
from trainer.learners.model.sharding import RankGroup, Ranks
from trainer.learners.packing.packing import PrefixGroup
from trainer.learners.recurrent import rule
from trainer.learners.update.throughput import peak_flops, peak_memory_gib

DEVICE = torch.device("cuda:0")
GROUPS = (
    PrefixGroup(prompt_length=5, branch_lengths=(3, 1, 4, 0)),
    PrefixGroup(prompt_length=4, branch_lengths=()),
    PrefixGroup(prompt_length=3, branch_lengths=(2,)),
)
LENGTH = sum(group.num_tokens for group in GROUPS)


class Kernels(TorchDispatchMode):
    """Counts what is called, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if "attention" in name or "varlen" in name or "adam" in name:
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counted(found: dict[str, Any], name: str) -> Iterator[None]:
    """Put the calls of the block into `found`."""
    with Kernels() as kernels:
        yield
    found[name] = dict(kernels.calls)


def main() -> None:
    """Print the kernels of each part."""
    found: dict[str, Any] = {}
    # Kernels that a GPU compiles compute nothing here: plain torch is followed in their place.
    torch.compiler.set_stance("force_eager")
    models.use_fused_kernels = lambda *_: False  # type: ignore[assignment]
    rule.by_kernels = rule.in_plain_torch
    # Joins by NCCL, and keeps scaled dot products off cuDNN. torch reads numbers out of the mesh of
    # its ranks, which a fake one would not have.
    ranks = Ranks(RankGroup(device="cuda:0"))
    rank_module.Ranks = lambda _world, **_: ranks  # type: ignore[assignment, misc, unused-ignore]
    attention._branch_mask = outside(attention._branch_mask)  # type: ignore[assignment]
    with FakeTensorMode(allow_non_fake_inputs=True):
        for model_type in TYPES:
            for dtype in precisions(model_type):
                with counted(found, f"{model_type} {dtype}"):
                    step(model_type, dtype)
        for name, in_one_call in (("one call", True), ("per branch", False)):
            with counted(found, name):
                attend(in_one_call=in_one_call)
        score()
    found["peak_flops"] = peak_flops(DEVICE)
    found["peak_memory_gib"] = peak_memory_gib(DEVICE)
    sys.stdout.write(f"{json.dumps(found)}\n")


def precisions(model_type: str) -> tuple[str, ...]:
    """Experts are grouped products, which fake tensors take in bfloat16 alone; a GPU takes both."""
    return ("bfloat16",) if "moe" in model_type else ("bfloat16", "float32")


def outside(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Let `make` run without modes, under which a tensor cannot become a mask's subclass."""

    def made(*given: Any) -> torch.Tensor:
        with _disable_current_modes():
            return make(*given)

    return made


def step(model_type: str, dtype: str) -> None:
    """Pass over families of several branches with gradients, and let the optimizer step."""
    with DEVICE:
        model = family_model(model_type)
    spec = LearnerSpec.model_validate(
        {"policy_dtype": dtype, "activation_checkpointing": True, "logprob_chunk_tokens": 16}
    )
    rank = rank_module.LearnerRank(model, LearnerOptions(learner=spec))
    for micro in rank._pack(sequences()):
        logprobs, entropies = rank._models.policy(micro)
        assert logprobs.device == entropies.device == DEVICE
        assert logprobs.dtype is torch.float32
        torch.autograd.backward(logprobs.sum())
    for name, parameter in rank._models.trained.items():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype is torch.float32, name
        assert parameter.grad.device == DEVICE, name
    rank._optimizer.step()
    rank._ranks.wait()


def sequences() -> list[TrainingSequence]:
    """Three rollouts of one prompt and one of another; they are never read."""
    return [
        TrainingSequence(
            token_ids=tuple(range(length)),
            action_mask=(False,) * prompt + (True,) * (length - prompt),
            logprobs=(0.0,) * length,
            prompt_length=prompt,
            advantage=1.0,
            temperature=1.0,
        )
        for prompt, length in ((9, 20), (9, 14), (9, 31), (4, 12))
    ]


def attend(*, in_one_call: bool) -> None:
    """Differentiate attention over families, one branch of them empty."""
    query, key, value = (
        torch.randn(1, heads, LENGTH, 64, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
        for heads in (8, 2, 2)
    )
    layout = VarlenLayout.of(GROUPS, DEVICE) if in_one_call else None
    output, _ = attention.prefix_group_attention(
        torch.nn.Identity(), query, key, value, None,
        scaling=0.125, prefix_groups=GROUPS, varlen_layout=layout,
    )  # fmt: skip
    torch.autograd.backward(output.float().sum())
    for part in (query, key, value):
        assert part.grad is not None
        assert part.grad.shape == part.shape


def score() -> None:
    """Differentiate the head in chunks."""
    hidden = torch.randn(50, 16, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    head = torch.randn(100, 16, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
    targets = torch.zeros(50, device=DEVICE, dtype=torch.int64)
    ones = torch.ones(50, device=DEVICE)
    logprobs, entropies = token_logprobs(hidden, head, targets, ones, chunk_tokens=16)
    torch.autograd.backward(logprobs.sum())
    assert hidden.grad is not None
    assert head.grad is not None
    assert entropies.device == DEVICE


if __name__ == "__main__":
    main()
