"""Beside a GPU AdamW is one kernel per tensor, wherever the weights are, and resumes as such."""

from __future__ import annotations

import torch

from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.learners.saved.state import counted_at
from trainer.learners.update.optimizer import make_optimizer

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SPEC = OptimizerSpec(lr=0.1, weight_decay=0.01)


def updated(device: torch.device) -> torch.Tensor:
    """A weight in the machine's memory after three updates by a rank that computes on `device`."""
    weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 64))
    optimizer = make_optimizer([weight], SPEC, device)
    for step in range(3):
        weight.grad = torch.cos(weight.detach() * (step + 1))
        optimizer.step()
    return weight.detach()


def test_weights_offloaded_from_a_gpu_are_updated_by_the_fused_kernel() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    assert make_optimizer([weight], SPEC, GPU).defaults["fused"] is True
    assert make_optimizer([weight], SPEC, CPU).defaults["fused"] is None
    torch.testing.assert_close(updated(GPU), updated(CPU), rtol=0.0, atol=1e-6)


def test_a_resumed_optimizer_counts_its_steps_where_its_kernel_reads_them() -> None:
    """A fused one on the weight's device: torch refuses a counter from elsewhere."""
    weight = torch.nn.Parameter(torch.zeros(2, device="meta"))
    moment, counter = torch.zeros(2), torch.tensor(3.0)
    fused = make_optimizer([torch.nn.Parameter(torch.zeros(2))], SPEC, GPU)
    plain = make_optimizer([torch.nn.Parameter(torch.zeros(2))], SPEC, CPU)
    assert counted_at(counter, weight, fused).device == weight.device
    assert counted_at(moment, weight, fused) is moment
    assert counted_at(counter, weight, plain) is counter
