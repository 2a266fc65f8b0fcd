"""A layer of linear attention (the gated delta net of Qwen3.5) and the states of all sessions.

In place of keys and values per token a row has a state and the last inputs of the convolution, for
exactly the tokens computed so far: it can be continued, and not be cut back. Rows are those of the
cache (`trainer.engines.torch.cache`): a session that has no token of its own yet begins with what
its prefix row holds.

Legend: N packed tokens, D hidden size, R decoding rows, E channels of the convolution, W its width,
G key heads, H value heads, K size of a key head, V of a value head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
import torch.nn.functional as F

from trainer.engines.torch.cache import Span
from trainer.inputs.model.families.delta_rule import DeltaInputs, delta_rule, delta_step
from trainer.inputs.model.families.delta_sizes import DeltaSizes


class Recur(Protocol):
    """Access of a delta net's new tokens to what came before them."""

    def convolve(self, layer: int, x_NE: torch.Tensor, weight_EW: torch.Tensor) -> torch.Tensor:
        """Return each channel convolved over a sequence's last W tokens, [N, E]."""
        ...

    def apply(self, layer: int, inputs: DeltaInputs) -> torch.Tensor:
        """Apply the delta rule to new tokens, whose inputs are [N, H, ...]; [N, H, V]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """Weights of one layer; projections are [outputs, inputs]."""

    sizes: DeltaSizes
    projections: torch.Tensor
    """Queries, keys and values, output gate, beta and decay in one product:
    [E + H V + 2 H, D]."""
    convolution: torch.Tensor
    """[E, 1, W], as files have it."""
    decay_log_H: torch.Tensor
    decay_bias_H: torch.Tensor
    norm_V: torch.Tensor
    out: torch.Tensor
    """[D, H V]."""
    eps: float

    def __call__(self, layer: int, x_ND: torch.Tensor, recur: Recur) -> torch.Tensor:
        """Compute the layer's output, [N, D]; it is number `layer` of its kind."""
        sizes = self.sizes
        parts = [sizes.channels, sizes.values, sizes.value_heads, sizes.value_heads]
        mixed, gate, beta, step = torch.split(F.linear(x_ND, self.projections), parts, dim=-1)
        mixed = F.silu(recur.convolve(layer, mixed, self.convolution.squeeze(1)))
        query, key, value = torch.split(mixed, [sizes.keys, sizes.keys, sizes.values], dim=-1)
        repeats = sizes.value_heads // sizes.key_heads
        inputs = DeltaInputs(
            query=query.reshape(len(x_ND), -1, sizes.key_dim).repeat_interleave(repeats, dim=1),
            key=key.reshape(len(x_ND), -1, sizes.key_dim).repeat_interleave(repeats, dim=1),
            value=value.reshape(len(x_ND), -1, sizes.value_dim),
            decay=-self.decay_log_H.exp() * F.softplus(step + self.decay_bias_H),
            beta=beta.sigmoid(),
        )
        output = F.rms_norm(recur.apply(layer, inputs), self.norm_V.shape, self.norm_V, self.eps)
        output = output * F.silu(gate).view_as(output)
        return F.linear(output.flatten(1), self.out)


class States:
    """States of `num_rows` prefix rows (0 ...) and as many own rows, as `Cache` numbers them."""

    def __init__(
        self, sizes: DeltaSizes, *, num_layers: int, num_rows: int, device: torch.device
    ) -> None:
        """Reserve the storage; the operating system commits pages when they are written."""
        shape = (num_layers, 2 * num_rows)
        self.inputs = torch.zeros(*shape, sizes.width - 1, sizes.channels, device=device)
        """Last inputs of the convolutions."""
        state = (sizes.value_heads, sizes.key_dim, sizes.value_dim)
        self.states = torch.zeros(*shape, *state, device=device)

    def plan(self, decoding: Sequence[Span], longer: Sequence[Span]) -> StateStep:
        """Prepare one step over spans packed in this order, the first of one token each."""
        return StateStep(self, decoding, longer)


class StateStep:
    """The `Recur` of one forward pass over stored states, which it carries on."""

    def __init__(self, states: States, decoding: Sequence[Span], longer: Sequence[Span]) -> None:
        """Find the row that each span begins with, and the row that it ends in."""
        self._states, self._longer = states, longer
        self._num_decoding = len(decoding)
        spans = (*decoding, *longer)
        device = states.states.device
        self._from = torch.tensor([_origin(span) for span in spans], device=device)
        self._into = torch.tensor([span.row for span in spans], device=device)
        # Rows are used again: what the session before left there is not read.
        self._has_any = torch.tensor(
            [span.start + span.prefix_length > 0 for span in spans], device=device
        )

    def convolve(self, layer: int, x_NE: torch.Tensor, weight_EW: torch.Tensor) -> torch.Tensor:
        """See `Recur.convolve`."""
        num, store = self._num_decoding, self._states.inputs[layer]
        before = self._begun(store)
        outputs = []
        after = torch.empty_like(before)
        if num:
            seen_RWE = torch.cat((before[:num], x_NE[:num].unsqueeze(1)), dim=1)
            outputs.append((seen_RWE * weight_EW.T).sum(1))
            after[:num] = seen_RWE[:, 1:]
        for at, tokens in self._spans():
            seen = torch.cat((before[at], x_NE[tokens]))
            outputs.append(_convolved(seen, weight_EW))
            after[at] = seen[len(seen) - len(before[at]) :]
        store.index_copy_(0, self._into, after)
        return torch.cat(outputs)

    def apply(self, layer: int, inputs: DeltaInputs) -> torch.Tensor:
        """See `Recur.apply`."""
        num, store = self._num_decoding, self._states.states[layer]
        state = self._begun(store)
        outputs = []
        if num:
            output, state[:num] = delta_step(_part(inputs, slice(num)), state[:num])
            outputs.append(output)
        for at, tokens in self._spans():
            output, last = delta_rule(_part(inputs, tokens, one_row=True), state[at : at + 1])
            outputs.append(output[0])
            state[at] = last[0]
        store.index_copy_(0, self._into, state)
        return torch.cat(outputs)

    def _begun(self, store: torch.Tensor) -> torch.Tensor:
        """Return a copy of what each span begins with; empty at a sequence's first token."""
        begun = store.index_select(0, self._from)
        begun[~self._has_any] = 0.0
        return begun

    def _spans(self) -> Iterator[tuple[int, slice]]:
        """Yield the number of each longer span and its place among the tokens."""
        start = self._num_decoding
        for at, span in enumerate(self._longer, start=self._num_decoding):
            yield at, slice(start, start + span.length)
            start += span.length


class WholeSequence:
    """The `Recur` of one sequence that is computed in a single pass, without stored states."""

    def convolve(self, layer: int, x_NE: torch.Tensor, weight_EW: torch.Tensor) -> torch.Tensor:
        """See `Recur.convolve`."""
        del layer
        before = x_NE.new_zeros(weight_EW.shape[1] - 1, x_NE.shape[1])
        return _convolved(torch.cat((before, x_NE)), weight_EW)

    def apply(self, layer: int, inputs: DeltaInputs) -> torch.Tensor:
        """See `Recur.apply`."""
        del layer
        return delta_rule(_part(inputs, slice(None), one_row=True))[0][0]


def _origin(span: Span) -> int:
    """Return the row whose state a span begins with."""
    return span.row if span.start else span.prefix_row


def _convolved(seen: torch.Tensor, weight_EW: torch.Tensor) -> torch.Tensor:
    """Convolve W - 1 earlier inputs and N new ones, [W - 1 + N, E]; return [N, E]."""
    each_channel = weight_EW.unsqueeze(1)
    return F.conv1d(seen.T.unsqueeze(0), each_channel, groups=len(weight_EW))[0].T


def _part(inputs: DeltaInputs, tokens: slice, *, one_row: bool = False) -> DeltaInputs:
    """Return the inputs of some tokens, with a first dimension for the row if `one_row`."""
    parts = {each.name: getattr(inputs, each.name)[tokens] for each in fields(inputs)}
    if one_row:
        parts = {name: part.unsqueeze(0) for name, part in parts.items()}
    return DeltaInputs(**parts)
