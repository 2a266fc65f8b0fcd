"""Linear attention over packed prefix groups: the gated delta net of the Qwen3.5 line.

transformers has no interface for this layer as it has for attention, and its own forward ignores
where a sequence of a packed stream ends: every branch would read the state of the one before. So
`prepare` replaces the layer's forward. A prompt is computed once; each of its branches begins with
the prompt's last state, and its convolution sees the prompt's last inputs.

A *run* is a stretch of the stream that is computed from one state on: a prompt, or a branch; a
prompt with a single branch is one run.
Legend: N tokens of the stream, M of the runs of one pass, R runs, E channels of the convolution,
W its width, H value heads, J first tokens of runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F

from trainer.errors import SpecError
from trainer.inputs.model.families.delta_rule import CHUNK, DeltaInputs, delta_rule
from trainer.inputs.model.families.family import CausalLM
from trainer.learners.packing.packing import PrefixGroup

DECAY = "hillclimb_decay"
"""Module around a layer's `A_log` and `dt_bias`, which stay float32 in a pass in bfloat16."""
_KERNELS = "fla"


def why_no_kernels(device: torch.device) -> str | None:
    """Return why linear attention is not computed on a device; None where it is."""
    if device.type != "cuda" or importlib.util.find_spec(_KERNELS) is not None:
        return None
    return (
        "models with linear attention need the package flash-linear-attention on a GPU, where plain"
        " torch is many times slower: install the packages of requirements/trainer-gpu.txt"
    )


def check_kernels(device: torch.device) -> None:
    """Check that linear attention can be computed on a device.

    Raises:
        SpecError: the kernels for GPUs are not installed.
    """
    if why := why_no_kernels(device):
        raise SpecError(why)


class Decay(torch.nn.Module):
    """Decay of a layer's state at each token, with the two parameters that need float32."""

    def __init__(self, A_log: torch.nn.Parameter, dt_bias: torch.nn.Parameter) -> None:
        """Take over the parameters of a layer, [H] each."""
        super().__init__()
        self.A_log, self.dt_bias = A_log, dt_bias

    def forward(self, a_NH: torch.Tensor) -> torch.Tensor:
        """Compute the logarithm of the decay, [N, H] float32."""
        rate_NH = F.softplus(a_NH.float() + self.dt_bias.float())
        return -self.A_log.float().exp() * rate_NH


def prepare(model: CausalLM) -> None:
    """Let the linear-attention layers of `model` compute packed prefix groups, in place."""
    for net in _delta_nets(model):
        if hasattr(net, DECAY):
            continue
        decay = Decay(net.A_log, net.dt_bias)
        del net.A_log, net.dt_bias
        net.add_module(DECAY, decay)
        net.forward = MethodType(_forward, net)


def decays(model: torch.nn.Module) -> Iterator[Decay]:
    """Yield the modules whose parameters stay float32."""
    return (module for module in model.modules() if isinstance(module, Decay))


def _delta_nets(model: torch.nn.Module) -> Iterator[Any]:
    return (net for name, net in model.named_modules() if name.endswith(".linear_attn"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """Runs of similar length, padded to the longest: `first` ... `first + num - 1`."""

    first: int
    num: int
    longest: int
    tokens: slice
    """Theirs among the M tokens."""
    places: torch.Tensor | None
    """Index of each token in [num * longest]; None where nothing is padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Runs that are computed in one pass, the longest first."""

    tokens_M: torch.Tensor
    """Index of each token in the stream, run after run."""
    offsets: torch.Tensor
    """Where each run begins among the tokens, and where the last one ends: [R + 1]."""
    origins_R: torch.Tensor | None
    """Of branches: the run of the prompts whose last state each begins with."""
    buckets: tuple[_Bucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayout:
    """Order in which the tokens of a packed stream are computed; the same in every layer."""

    prompts: _Runs
    branches: _Runs | None
    order_N: torch.Tensor
    """Index of each token of the stream among those of prompts and branches, in this order."""
    heads_J: torch.Tensor
    """The first W - 1 tokens of each run, whose convolution looks beyond the run's beginning."""
    taps_JW: torch.Tensor
    """Index of the W tokens that each of them sees; N stands for none."""

    @classmethod
    def of(cls, groups: Sequence[PrefixGroup], width: int, device: torch.device) -> RecurrentLayout:
        """Lay out the stream of `groups` for convolutions over `width` tokens."""
        prompts: list[range] = []
        branches: list[tuple[range, int]] = []
        start = 0
        for group in groups:
            stop = start + group.num_tokens
            ends = [*accumulate(group.branch_lengths, initial=start + group.prompt_length)]
            if len(group.branch_lengths) == 1:
                ends = [stop]
            branches += [(range(a, b), len(prompts)) for a, b in pairwise(ends) if b > a]
            prompts.append(range(start, ends[0]))
            start = stop
        before = [range(each.start, each.start) for each in prompts]
        before += [prompts[prompt] for _, prompt in branches]
        heads, taps = _taps([*prompts, *(run for run, _ in branches)], before, width, start)
        # Longest first; a stable order, so that a run's place is known from its length.
        ranked = sorted(range(len(prompts)), key=lambda each: -len(prompts[each]))
        places = {prompt: place for place, prompt in enumerate(ranked)}
        branches.sort(key=lambda each: -len(each[0]))
        first = _runs([prompts[each] for each in ranked], None, device)
        second = None
        if branches:
            origins = torch.tensor([places[prompt] for _, prompt in branches], device=device)
            second = _runs([run for run, _ in branches], origins, device)
        computed = [first.tokens_M] + ([second.tokens_M] if second is not None else [])
        return cls(
            prompts=first,
            branches=second,
            order_N=torch.cat(computed).argsort(),
            heads_J=torch.tensor(heads, device=device),
            taps_JW=torch.tensor(taps, device=device),
        )


def _taps(
    runs: Sequence[range], before: Sequence[range], width: int, none: int
) -> tuple[list[int], list[list[int]]]:
    """Return the first tokens of each run, and the `width` tokens that end with each of them."""
    heads: list[int] = []
    taps: list[list[int]] = []
    for run, earlier in zip(runs, before, strict=True):
        seen = [none] * width + [*earlier[-width:]]
        for token in run[: width - 1]:
            seen.append(token)
            heads.append(token)
            taps.append(seen[-width:])
    return heads, taps


def _runs(runs: Sequence[range], origins: torch.Tensor | None, device: torch.device) -> _Runs:
    """Lay out runs that are sorted by length, the longest first."""
    ends = [*accumulate((len(run) for run in runs), initial=0)]
    buckets: list[_Bucket] = []
    first = 0
    while first < len(runs):
        longest = len(runs[first])
        # Padding at most doubles what is computed, and chunks are computed whole anyway.
        last = first
        while last < len(runs) and 2 * max(len(runs[last]), CHUNK) >= longest:
            last += 1
        places = None
        if len(runs[last - 1]) < longest:
            places = torch.cat(
                [torch.arange(len(run)) + row * longest for row, run in enumerate(runs[first:last])]
            ).to(device)
        buckets.append(
            _Bucket(
                first=first,
                num=last - first,
                longest=longest,
                tokens=slice(ends[first], ends[last]),
                places=places,
            )
        )
        first = last
    return _Runs(
        tokens_M=torch.cat([torch.arange(run.start, run.stop) for run in runs]).to(device),
        offsets=torch.tensor(ends, device=device),
        origins_R=origins,
        buckets=tuple(buckets),
    )


def _forward(
    net: Any,  # noqa: ANN401 - a layer of transformers, whose classes differ by family
    hidden_states: torch.Tensor,
    cache_params: object = None,
    attention_mask: object = None,
    *,
    recurrent_layout: RecurrentLayout | None = None,
    context_group: object = None,
    **unused: object,
) -> torch.Tensor:
    """Compute the layer's output, [1, N, D]; without a layout the stream is one sequence.

    The signature is that of transformers' `Qwen3_5GatedDeltaNet`.

    Raises:
        SpecError: ranks share the stream: states are not passed on between them.
    """
    if context_group is not None:
        raise SpecError(
            "models with linear attention are not trained with context parallelism, in which ranks"
            " would have to pass on the states of a sequence: let each rank have whole sequences"
        )
    del cache_params, attention_mask, unused
    x_ND = hidden_states[0]
    if recurrent_layout is None:
        whole = PrefixGroup(prompt_length=len(x_ND), branch_lengths=())
        recurrent_layout = RecurrentLayout.of((whole,), net.conv_kernel_size, x_ND.device)
    mixed_NE = _convolved(net.conv1d, net.in_proj_qkv(x_ND), recurrent_layout)
    query, key, value = torch.split(mixed_NE, [net.key_dim, net.key_dim, net.value_dim], dim=-1)
    repeats = net.num_v_heads // net.num_k_heads
    inputs = DeltaInputs(
        query=_heads(query, net.head_k_dim).repeat_interleave(repeats, dim=1),
        key=_heads(key, net.head_k_dim).repeat_interleave(repeats, dim=1),
        value=_heads(value, net.head_v_dim),
        decay=getattr(net, DECAY)(net.in_proj_a(x_ND)),
        beta=net.in_proj_b(x_ND).sigmoid(),
    )
    mixed_NHV = _mixed(inputs, recurrent_layout).to(x_ND.dtype)
    gate_NHV = _heads(net.in_proj_z(x_ND), net.head_v_dim)
    normed = net.norm(mixed_NHV.flatten(0, 1), gate_NHV.flatten(0, 1))
    output: torch.Tensor = net.out_proj(normed.view(len(x_ND), -1))
    return output.unsqueeze(0)


def _heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return [N, heads, size] of [N, heads x size]."""
    return x.reshape(len(x), -1, size)


def _convolved(
    convolution: torch.nn.Conv1d, x_NE: torch.Tensor, layout: RecurrentLayout
) -> torch.Tensor:
    """Convolve each channel over a sequence's last W tokens, then silu; [N, E].

    One convolution over the whole stream, in which the first tokens of a run see the run before;
    those are computed again, by what they should see.
    """
    length, weight_EW = len(x_NE), convolution.weight.squeeze(1)
    whole_NE = convolution(x_NE.T.unsqueeze(0))[0, :, :length].T
    none_1E = x_NE.new_zeros(1, x_NE.shape[1])
    seen_JWE = torch.cat((x_NE, none_1E))[layout.taps_JW]
    heads_JE = (seen_JWE.float() * weight_EW.T.float()).sum(1).to(x_NE.dtype)
    return F.silu(whole_NE.index_copy(0, layout.heads_J, heads_JE))


def _mixed(inputs: DeltaInputs, layout: RecurrentLayout) -> torch.Tensor:
    """Apply the rule to the stream: the prompts, then the branches from the prompts' states."""
    apply = _with_kernels if inputs.key.device.type == "cuda" else _padded
    output, states = apply(inputs, layout.prompts, None)
    if layout.branches is not None:
        assert layout.branches.origins_R is not None
        begin = states.index_select(0, layout.branches.origins_R)
        output = torch.cat((output, apply(inputs, layout.branches, begin)[0]))
    return output.index_select(0, layout.order_N)


def _tokens_of(inputs: DeltaInputs, tokens_M: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        each.name: getattr(inputs, each.name).index_select(0, tokens_M) for each in fields(inputs)
    }


def _padded(
    inputs: DeltaInputs, runs: _Runs, states: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule in plain torch; return outputs [M, H, V] and the states after each run."""
    tokens = _tokens_of(inputs, runs.tokens_M)
    outputs, lasts = [], []
    for bucket in runs.buckets:
        rows = {name: _rows(x[bucket.tokens], bucket) for name, x in tokens.items()}
        begin = None if states is None else states[bucket.first : bucket.first + bucket.num]
        output, last = delta_rule(DeltaInputs(**rows), begin)
        flat = output.flatten(0, 1)
        outputs.append(flat if bucket.places is None else flat.index_select(0, bucket.places))
        lasts.append(last)
    return torch.cat(outputs), torch.cat(lasts)


def _rows(x_M: torch.Tensor, bucket: _Bucket) -> torch.Tensor:
    """Return [runs, longest, ...], padded with zeros, which leave a state as it is."""
    if bucket.places is not None:
        empty = x_M.new_zeros(bucket.num * bucket.longest, *x_M.shape[1:])
        x_M = empty.index_copy(0, bucket.places, x_M)
    return x_M.view(bucket.num, bucket.longest, *x_M.shape[1:])


def _with_kernels(
    inputs: DeltaInputs, runs: _Runs, states: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule by the kernels for GPUs, which need no padding; never run on one yet."""
    from fla.ops.gated_delta_rule import (  # type: ignore[import-not-found]  # noqa: PLC0415 - only on GPUs
        chunk_gated_delta_rule,
    )

    tokens = {name: x.unsqueeze(0) for name, x in _tokens_of(inputs, runs.tokens_M).items()}
    output, lasts = chunk_gated_delta_rule(
        tokens["query"],
        tokens["key"],
        tokens["value"],
        g=tokens["decay"],
        beta=tokens["beta"],
        initial_state=states,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=runs.offsets,
    )
    return output[0], lasts
