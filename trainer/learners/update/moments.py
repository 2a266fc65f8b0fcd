"""AdamW whose two moments are stored in fewer bits: `learner.optimizer_moments`.

Each moment is float32 while torch's own AdamW uses it, a part of a tensor at a time, and is stored
again behind it. Vectors and small tensors stay float32: they are a thousandth of a model. What is
stored are plain tensors with the rows of their weight, so a checkpoint can be read on any number of
ranks, and a run goes on bit for bit: random rounding depends on the number of the step alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch.distributed.tensor import DTensor
from torch.optim.adamw import adamw

from trainer.learners.update.compact import decode, encode, num_blocks, round_randomly

Moments = Literal["float32", "bfloat16", "int8"]
State = dict[str, torch.Tensor]
FIRST, SECOND = "exp_avg", "exp_avg_sq"
SCALE = "_scale"
"""Ending of the key with the scales of codes."""
MIN_NUMBERS = 4096
"""Of a tensor whose moments are stored in fewer bits."""
PART = 2**24
"""Most numbers of a tensor whose moments are float32 at once: 64 MiB each."""


class CompactAdamW(torch.optim.AdamW):
    """torch's AdamW with moments in `moments`; settings are read from `param_groups` as there."""

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        moments: Moments,
        *,
        fused: bool | None,
        seed: int = 0,
        **settings: Any,  # noqa: ANN401 - AdamW's own
    ) -> None:
        """Take AdamW's settings; `seed` is another one on each rank."""
        super().__init__(parameters, fused=fused, **settings)
        self.moments: Moments = moments
        self._seed = seed

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        del closure
        for group in self.param_groups:
            for number, parameter in enumerate(group["params"]):
                if parameter.grad is not None:
                    self._update(parameter, number, group)

    def _update(self, parameter: torch.nn.Parameter, number: int, group: Mapping[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state |= _zeros(parameter, self.moments, on_device=bool(group["fused"]))
        weight, gradient = local(parameter), local(parameter.grad)
        stored = {key: local(each) for key, each in state.items() if key != "step"}
        # The same on every resume, another one for each step, tensor and rank.
        seed = hash((int(state["step"].item()), number, self._seed)) & 0x7FFF_FFFF
        for rows in _parts(weight):
            part = {key: each[rows] for key, each in stored.items()}
            first, second = _read(part, FIRST), _read(part, SECOND)
            adamw(
                [weight[rows]], [gradient[rows]], [first], [second], [],
                [state["step"].clone()],
                foreach=False, fused=group["fused"], amsgrad=False, maximize=False,
                beta1=group["betas"][0], beta2=group["betas"][1],
                lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"],
            )  # fmt: skip
            _store(part, FIRST, first, seed=seed)
            _store(part, SECOND, second, seed=seed + 1)
            seed += 2
        state["step"] += 1


def moments_of(optimizer: torch.optim.Optimizer) -> Moments:
    """Return how an optimizer stores its moments."""
    return optimizer.moments if isinstance(optimizer, CompactAdamW) else "float32"


def converted(state: State, parameter: torch.nn.Parameter, moments: Moments) -> State:
    """Return a parameter's state with its moments stored as `moments`.

    They may come from a checkpoint that stored them otherwise.
    """
    fresh = _zeros(parameter, moments, on_device=False)
    if not state or {key: each.dtype for key, each in state.items() if key != "step"} == {
        key: each.dtype for key, each in fresh.items() if key != "step"
    }:
        return state
    old, new = ({key: local(each) for key, each in of.items()} for of in (state, fresh))
    for key in (FIRST, SECOND):
        _store(new, key, _read(old, key), seed=0)
    return fresh | {"step": state["step"]}


def local(tensor: torch.Tensor | None) -> torch.Tensor:
    """Return this rank's rows of a tensor that the ranks share."""
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def _zeros(parameter: torch.nn.Parameter, moments: Moments, *, on_device: bool) -> State:
    """Return the state before the first step; rows are those of the parameter on each rank."""
    weight = parameter.detach()
    place = weight.device if on_device else "cpu"
    state: State = {"step": torch.zeros((), device=place)}
    is_small = weight.dim() < 2 or weight.numel() < MIN_NUMBERS
    for key in (FIRST, SECOND):
        if moments == "float32" or is_small:
            state[key] = torch.zeros_like(weight, dtype=torch.float32)
        elif moments == "bfloat16":
            state[key] = torch.zeros_like(weight, dtype=torch.bfloat16)
        else:
            state[key] = torch.zeros_like(weight, dtype=torch.uint8)
            blocks = weight[..., : num_blocks(weight.shape[-1])]
            state[key + SCALE] = torch.zeros_like(
                blocks, dtype=torch.float32, memory_format=torch.contiguous_format
            )
    return state


def _parts(weight: torch.Tensor) -> Iterator[slice]:
    """Yield the rows of this rank in parts of at most `PART` numbers, or of a row."""
    if not weight.numel():
        return
    step = max(PART // (weight.numel() // len(weight)), 1) if weight.dim() else 1
    for start in range(0, len(weight), step):
        yield slice(start, start + step)


def _read(stored: Mapping[str, torch.Tensor], key: str) -> torch.Tensor:
    """Return a moment in float32: itself where it is stored so."""
    values = stored[key]
    if values.dtype is torch.uint8:
        return decode(values, stored[key + SCALE], signed=key == FIRST)
    return values.float()


def _store(
    stored: Mapping[str, torch.Tensor], key: str, values: torch.Tensor, *, seed: int
) -> None:
    """Write float32 values into a moment's storage, in place."""
    into = stored[key]
    if into.dtype is torch.uint8:
        codes, scales = encode(values, signed=key == FIRST)
        into.copy_(codes)
        stored[key + SCALE].copy_(scales)
    elif into.dtype is torch.bfloat16:
        into.copy_(round_randomly(values, seed=seed))
    elif into is not values:
        into.copy_(values)
