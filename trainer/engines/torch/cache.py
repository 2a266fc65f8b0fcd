"""Key/value cache of all sessions in flight, and the attention over it.

A trajectory's cache is two rows: a *prefix* row, shared by all rollouts of a group and computed
once, and its own row for what follows. A decode step reads each prefix row once for the whole
group: without that, group sampling spends most of its memory traffic there. The two partial
softmaxes are merged exactly by their maxima and sums.

Legend: N packed tokens, R decoding rows, Q query heads, K key/value heads, J = Q / K,
H head size, P prefix rows, S own rows, L positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import torch
import torch.nn.functional as F

_MASKED = -1e30
"""Finite, so that a row without any position gives weight 0 and no NaN."""

BLOCK_COST = 330
"""Cost of one more block of own rows, in row-positions: the dozen short operations of a block cost
about as much as this many positions (an estimate for the tiny model on one core)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """New tokens of one row, written from `start` on; they follow the prefix row's positions."""

    prefix_row: int
    prefix_length: int
    row: int
    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Adjacent own rows `start` ... `stop` - 1 attended together, each padded to the longest."""

    start: int
    stop: int
    longest: int
    """Positions of the longest row."""
    mask: torch.Tensor
    """[rows * K, 1, longest]; see `_length_mask`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partial:
    """Attention over part of the positions, [..., H] or [..., 1] per query.

    With scores s and m their maximum: `output` = sum exp(s - m) v, `total` = sum exp(s - m).
    """

    output: torch.Tensor
    maximum: torch.Tensor
    total: torch.Tensor


class Cache:
    """Storage for `num_rows` prefix rows (0 ...) and as many own rows (`num_rows` ...)."""

    def __init__(
        self, *, num_layers: int, num_rows: int, num_kv_heads: int, length: int, head_dim: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        """Reserve the storage; the operating system commits pages when they are written.

        Keys and values are [layers, 2 * num_rows, K, length, H] each.
        """
        shape = (num_layers, 2 * num_rows, num_kv_heads, length, head_dim)
        self.keys = torch.zeros(shape, device=device)
        self.values = torch.zeros(shape, device=device)
        self.num_rows = num_rows

    def plan(self, decoding: Sequence[Span], longer: Sequence[Span]) -> StepPlan:
        """Prepare the indices and masks of one step, the same for all layers.

        `decoding` are spans of one token in own rows. Tokens are packed in this order.
        """
        return StepPlan(self, decoding, longer)


class StepPlan:
    """The `Attend` of one forward pass over cached rows."""

    def __init__(self, cache: Cache, decoding: Sequence[Span], longer: Sequence[Span]) -> None:
        """Prepare write positions, the decoding batch and the masks of longer spans."""
        self._cache = cache
        self._device = cache.keys.device
        self._write = self._write_index((*decoding, *longer))
        self._num_decoding = len(decoding)
        self._decoding = _DecodingBatch(cache, decoding) if decoding else None
        self._longer = [(span, _causal_mask(span, self._device)) for span in longer]

    def __call__(
        self, layer: int, q_NQH: torch.Tensor, k_NKH: torch.Tensor, v_NKH: torch.Tensor
    ) -> torch.Tensor:
        """Store the new keys and values, then attend; [N, Q, H]."""
        head_dim = q_NQH.shape[-1]
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        keys.view(-1, head_dim).index_copy_(0, self._write, k_NKH.reshape(-1, head_dim))
        values.view(-1, head_dim).index_copy_(0, self._write, v_NKH.reshape(-1, head_dim))
        parts = []
        if self._decoding is not None:
            parts.append(self._decoding.attend(q_NQH[: self._num_decoding], keys, values))
        start = self._num_decoding
        for span, mask in self._longer:
            parts.append(_attend_span(span, mask, q_NQH[start : start + span.length], keys, values))
            start += span.length
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _write_index(self, spans: Sequence[Span]) -> torch.Tensor:
        """Return the places of the new tokens in the flattened store, [N * K].

        The store of a layer is [rows, K, length, H]; seen as [rows * K * length, H], token t of a
        row and head k is at (row * K + k) * length + t. No Python loop over tokens.
        """
        num_kv_heads, length = self._cache.keys.shape[2:4]
        rows = torch.tensor([span.row for span in spans])
        starts = torch.tensor([span.start for span in spans])
        lengths = torch.tensor([span.length for span in spans])
        # [N]: the place of each span's first token (head 0), repeated for each of its tokens ...
        first = torch.repeat_interleave(rows * num_kv_heads * length + starts, lengths)
        # ... and [N]: 0, 1, 2 ... within each span.
        ends = lengths.cumsum(0)
        offset = torch.arange(int(ends[-1])) - torch.repeat_interleave(ends - lengths, lengths)
        heads = torch.arange(num_kv_heads) * length
        return ((first + offset).unsqueeze(1) + heads).flatten().to(self._device)


class _DecodingBatch:
    """Rows that decode one token in this step, arranged for two batched attentions.

    Prefix side: queries of one group are stacked as [P, group, ...], so that one product reads each
    prefix row once; groups smaller than the largest are padded with zero queries. Own side: rows
    are cut into blocks of neighbours (`_blocks`).
    """

    def __init__(self, cache: Cache, spans: Sequence[Span]) -> None:
        device = cache.keys.device
        # Rank of each span among the users of its prefix: its place in the padded stack.
        members: dict[int, int] = {}
        ranks = []
        for span in spans:
            ranks.append(members.get(span.prefix_row, 0))
            members[span.prefix_row] = ranks[-1] + 1
        self._group = max(members.values())
        # `Sessions` allocates the lowest rows first, so the range up to the highest one in use is
        # short. Slicing it gives a view of the store: no keys are copied.
        self._num_prefixes = max(members) + 1
        prefix_lengths = torch.zeros(self._num_prefixes, dtype=torch.long)
        prefix_rows = torch.tensor([span.prefix_row for span in spans])
        prefix_lengths[prefix_rows] = torch.tensor([span.prefix_length for span in spans])
        kv_heads = cache.keys.shape[2]
        self._prefix_mask = _length_mask(prefix_lengths, kv_heads).to(device)
        self._prefix_index = (prefix_rows * self._group + torch.tensor(ranks)).to(device)
        lengths = {span.row: span.start + 1 for span in spans}
        self._blocks, place = _blocks(lengths, kv_heads, device)
        self._num_places = len(place)
        self._own_index = torch.tensor([place[span.row] for span in spans], device=device)

    def attend(self, q_RQH: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Attend from one new token per row to its prefix and its own positions; [R, Q, H]."""
        heads, kv_heads = q_RQH.shape[1], keys.shape[1]
        q_RKJH = q_RQH.reshape(len(q_RQH), kv_heads, heads // kv_heads, -1)
        prefix = self._attend_prefix(q_RKJH, keys, values)
        own = self._attend_own(q_RKJH, keys, values)
        # Merge the partial softmaxes exactly: rescale both to the common maximum, then add.
        maximum = torch.maximum(prefix.maximum, own.maximum)
        prefix_scale = (prefix.maximum - maximum).exp_()
        own_scale = (own.maximum - maximum).exp_()
        total = prefix.total * prefix_scale + own.total * own_scale
        output = prefix.output * prefix_scale + own.output * own_scale
        return (output / total).reshape(q_RQH.shape)

    def _attend_prefix(
        self, q_RKJH: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> _Partial:
        num, group = self._num_prefixes, self._group
        _, kv_heads, per_kv, size = q_RKJH.shape
        q = q_RKJH.new_zeros(num * group, kv_heads, per_kv, size)
        q.index_copy_(0, self._prefix_index, q_RKJH)
        # Stack the query heads that share a key/value head, of all rows of a group, into one
        # matrix [group * J, H] per prefix row and key/value head.
        q = q.view(num, group, kv_heads, per_kv, size).transpose(1, 2)
        q = q.reshape(num * kv_heads, group * per_kv, size)
        length = self._prefix_mask.shape[-1]
        partial = _attend_part(q, keys[:num, :, :length], values[:num, :, :length],
                               self._prefix_mask)  # fmt: skip

        def by_row(tensor: torch.Tensor) -> torch.Tensor:
            # Back from [P * K, group * J, ...] to [R, K, J, ...] without the padding.
            folded = tensor.view(num, kv_heads, group, per_kv, -1).transpose(1, 2)
            return folded.flatten(0, 1).index_select(0, self._prefix_index)

        return _Partial(
            output=by_row(partial.output),
            maximum=by_row(partial.maximum),
            total=by_row(partial.total),
        )

    def _attend_own(
        self, q_RKJH: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> _Partial:
        _, kv_heads, per_kv, size = q_RKJH.shape
        q = q_RKJH.new_zeros(self._num_places, kv_heads, per_kv, size)
        q.index_copy_(0, self._own_index, q_RKJH)
        parts, first = [], 0
        for block in self._blocks:
            rows, last = slice(block.start, block.stop), first + block.stop - block.start
            parts.append(
                _attend_part(
                    q[first:last].flatten(0, 1),
                    keys[rows, :, : block.longest],
                    values[rows, :, : block.longest],
                    block.mask,
                )
            )
            first = last

        def by_row(tensors: list[torch.Tensor]) -> torch.Tensor:
            folded = torch.cat(tensors).view(-1, kv_heads, per_kv, tensors[0].shape[-1])
            return folded.index_select(0, self._own_index)

        return _Partial(
            output=by_row([part.output for part in parts]),
            maximum=by_row([part.maximum for part in parts]),
            total=by_row([part.total for part in parts]),
        )


def _attend_part(
    q: torch.Tensor, keys_BKLH: torch.Tensor, values_BKLH: torch.Tensor, mask: torch.Tensor
) -> _Partial:
    """Attend [B * K, queries, H] to one store of keys, unnormalised; `mask` is [B * K, 1, L].

    `baddbmm` adds the mask in the product itself; `sub_` and `exp_` reuse the memory of the scores.
    """
    scale = keys_BKLH.shape[-1] ** -0.5
    keys = keys_BKLH.flatten(0, 1).transpose(1, 2)
    scores = torch.baddbmm(mask, q, keys, alpha=scale)
    maximum = scores.amax(-1, keepdim=True)
    weights = scores.sub_(maximum).exp_()
    return _Partial(
        output=torch.bmm(weights, values_BKLH.flatten(0, 1)),
        maximum=maximum,
        total=weights.sum(-1, keepdim=True),
    )


def _attend_span(
    span: Span,
    mask: torch.Tensor | None,
    q_NQH: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Attend from several new tokens of one row; returns [N, Q, H]. `mask` as `_causal_mask`."""
    stop = span.start + span.length

    def visible(store: torch.Tensor) -> torch.Tensor:
        shared = store[span.prefix_row, :, : span.prefix_length]
        return torch.cat((shared, store[span.row, :, :stop]), dim=1).unsqueeze(0)

    output = F.scaled_dot_product_attention(
        q_NQH.transpose(0, 1).unsqueeze(0), visible(keys), visible(values),
        attn_mask=mask, is_causal=mask is None, enable_gqa=True,
    )  # fmt: skip
    return output[0].transpose(0, 1)


def _causal_mask(span: Span, device: torch.device) -> torch.Tensor | None:
    """True where a new token attends, bool [length, prefix_length + start + length].

    None where nothing is before them, as in most prompts: then each attends up to itself, and the
    kernel skips what is masked. With a mask of 1,000 tokens it took three times as long.
    """
    before = span.prefix_length + span.start
    if not before:
        return None
    columns = torch.arange(before + span.length, device=device)
    return columns <= before + torch.arange(span.length, device=device).unsqueeze(1)


def _length_mask(lengths: torch.Tensor, num_kv_heads: int) -> torch.Tensor:
    """Return 0 within each row's length and `_MASKED` after it, [rows * K, 1, longest]."""
    columns = torch.arange(max(1, int(lengths.max())))
    outside = columns >= lengths.repeat_interleave(num_kv_heads).unsqueeze(1)
    return torch.zeros(outside.shape).masked_fill_(outside, _MASKED).unsqueeze(1)


def _blocks(
    lengths: Mapping[int, int], num_kv_heads: int, device: torch.device
) -> tuple[list[_Block], dict[int, int]]:
    """Cut the rows in use into blocks; return them, and each row's place in their concatenation.

    A row joins the block before it unless the padding this adds, idle rows between included,
    costs more than a block of its own (`BLOCK_COST`).
    """
    ranges: list[tuple[int, int, int]] = []
    for row in sorted(lengths):
        length = lengths[row]
        if ranges:
            start, stop, longest = ranges[-1]
            grown = max(longest, length)
            if (row + 1 - start) * grown - (stop - start) * longest - length < BLOCK_COST:
                ranges[-1] = (start, row + 1, grown)
                continue
        ranges.append((row, row + 1, length))
    blocks: list[_Block] = []
    place: dict[int, int] = {}
    for start, stop, longest in ranges:
        place.update(zip(range(start, stop), count(len(place))))
        own = torch.tensor([lengths.get(row, 1) for row in range(start, stop)])
        mask = _length_mask(own, num_kv_heads).to(device)
        blocks.append(_Block(start=start, stop=stop, longest=longest, mask=mask))
    return blocks, place
