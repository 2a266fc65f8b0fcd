"""An optimizer whose state was away continues bit for bit."""

from __future__ import annotations

import torch

from trainer.learners.update.parking import HOST, park, unpark


def weights_after(num_updates: int, *, parks: bool) -> torch.Tensor:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(5, 3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    for _ in range(num_updates):
        optimizer.zero_grad()
        (weight.sin().sum() ** 2).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if parks:
            park(optimizer)
            assert weight.grad is None
            assert {each.device for each in moments(optimizer)} == {HOST}
            unpark(optimizer)
    return weight.detach()


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [each for values in optimizer.state.values() for each in values.values() if each.dim()]


def test_updates_are_the_same_bit_for_bit() -> None:
    assert torch.equal(weights_after(4, parks=True), weights_after(4, parks=False))


def test_moments_go_to_the_host_and_back_and_counters_stay() -> None:
    """The device `meta` stands for a GPU: what is there is no longer here."""
    weight = torch.nn.Parameter(torch.randn(5, 3, device="meta"))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    counter = torch.tensor(1.0)
    optimizer.state[weight] = {
        "step": counter, "exp_avg": torch.ones(5, 3), "exp_avg_sq": torch.ones(5, 3)
    }  # fmt: skip
    unpark(optimizer)
    assert {each.device.type for each in moments(optimizer)} == {"meta"}
    assert optimizer.state[weight]["step"] is counter


def test_what_was_never_stepped_has_nothing_to_move() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
    park(optimizer)
    unpark(optimizer)
    assert not optimizer.state
