"""FlashAttention 4 as an operation of torch; its kernels are stood in for by plain attention."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from trainer.learners.model.kernels import flash4
from trainer.learners.model.recompute import RESULTS

HEADS, KV_HEADS, SIZE = 4, 2, 8
QUERY_LENGTHS, KEY_LENGTHS = (5, 3, 1), (5, 8, 6)
SCALE = SIZE**-0.5


def split(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Queries, keys and values of each sequence, all with as many heads, and its scores."""
    parts = (query.split(QUERY_LENGTHS), key.split(KEY_LENGTHS), value.split(KEY_LENGTHS))
    for q, narrow_k, narrow_v in zip(*parts, strict=True):
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (narrow_k, narrow_v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * SCALE
        later = torch.ones(len(q), len(k)).triu(1 + len(k) - len(q)).bool()
        yield q, k, v, scores.masked_fill(later, -torch.inf)


def plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of each sequence from its last query and last key; and log-sum-exp."""
    outputs, norms = [], []
    for _, _, v, scores in split(query, key, value):
        norms.append(scores.logsumexp(-1))
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(outputs), torch.cat(norms, dim=1)


def plain_gradients(
    parts: tuple[torch.Tensor, ...],
    output: torch.Tensor,
    grad: torch.Tensor,
    norms: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """By hand: an operation of torch computes below autograd."""
    found: list[list[torch.Tensor]] = [[], [], []]
    shares = (output.split(QUERY_LENGTHS), grad.split(QUERY_LENGTHS), norms.split(QUERY_LENGTHS, 1))
    query, key, value = parts
    for (q, k, v, scores), o, do, norm in zip(split(query, key, value), *shares, strict=True):
        weights = (scores - norm.unsqueeze(-1)).exp()
        inner = torch.einsum("qhd,khd->hqk", do, v) - (do * o).sum(-1).T.unsqueeze(-1)
        slopes = weights * inner * SCALE
        found[0].append(torch.einsum("hqk,khd->qhd", slopes, k))
        wide = (
            torch.einsum("hqk,qhd->khd", slopes, q), torch.einsum("hqk,qhd->khd", weights, do)
        )  # fmt: skip
        for place, each in enumerate(wide, start=1):
            found[place].append(each.unflatten(1, (KV_HEADS, -1)).sum(2))
    return tuple(torch.cat(each) for each in found)


class Kernels:
    """What vLLM's module has, counting its calls."""

    def __init__(self) -> None:
        self.forwards: list[dict[str, Any]] = []
        self.backwards: list[dict[str, Any]] = []

    def _flash_attn_fwd(self, *qkv: torch.Tensor, **settings: Any) -> tuple[Any, ...]:
        self.forwards.append(settings)
        return (*plain(*qkv), None, None)

    def _flash_attn_bwd(self, *tensors: torch.Tensor, **settings: Any) -> tuple[Any, ...]:
        self.backwards.append(settings)
        query, key, value, output, grad, norms = tensors
        return plain_gradients((query, key, value), output, grad, norms)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    found = Kernels()
    monkeypatch.setattr(flash4, "_interface", lambda: found)
    return found


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    sizes = ((sum(QUERY_LENGTHS), HEADS), *((sum(KEY_LENGTHS), KV_HEADS),) * 2)
    return [torch.randn(*size, SIZE, requires_grad=True) for size in sizes]


def attend(*qkv: torch.Tensor) -> torch.Tensor:
    offsets = [
        torch.tensor((0, *lengths)).cumsum(0).int() for lengths in (QUERY_LENGTHS, KEY_LENGTHS)
    ]
    query, key, value = qkv
    return flash4.attend(
        query, key, value, *offsets, max(QUERY_LENGTHS), max(KEY_LENGTHS),
        scale=SCALE, window_size=(-1, 0),
    )  # fmt: skip


def test_output_and_gradients_are_those_of_the_kernels_and_all_lengths_reach_them(
    kernels: Kernels,
) -> None:
    qkv = inputs()
    direction = torch.randn(sum(QUERY_LENGTHS), HEADS, SIZE)
    expected = plain(*qkv)[0]
    true = torch.autograd.grad((expected * direction).sum(), qkv)
    output = attend(*qkv)
    found = torch.autograd.grad((output * direction).sum(), qkv)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(found, true)
    [forward], [backward] = kernels.forwards, kernels.backwards
    for settings in (forward, backward):
        assert settings["causal"] is True
        assert settings["softmax_scale"] == SCALE
        assert settings["cu_seqlens_q"].tolist() == [0, 5, 8, 9]
        assert settings["cu_seqlens_k"].tolist() == [0, 5, 13, 19]
        assert (settings["max_seqlen_q"], settings["max_seqlen_k"]) == (5, 8)
    assert backward["deterministic"] is False


def test_its_sums_have_one_order_where_torchs_have(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    torch.autograd.backward(attend(*inputs()).sum())
    assert [each["deterministic"] for each in kernels.backwards] == [True]


@pytest.mark.parametrize(("keep", "forwards"), [("attention", 1), ("none", 2)])
def test_a_checkpointed_layer_computes_it_again_unless_attention_is_kept(
    kernels: Kernels, keep: str, forwards: int
) -> None:
    qkv = inputs()
    contexts = {}
    if RESULTS[keep]:
        contexts["context_fn"] = lambda: create_selective_checkpoint_contexts(RESULTS[keep])
    output = checkpoint(attend, *qkv, use_reentrant=False, **contexts)
    torch.autograd.backward(output.sum())
    assert len(kernels.forwards) == forwards


def test_only_a_hopper_in_bfloat16_with_heads_of_128_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: Any = SimpleNamespace(head_dim=128, num_attention_heads=4, num_key_value_heads=2)
    monkeypatch.setattr(flash4, "is_there", lambda: True)
    monkeypatch.setattr(flash4, "_gap", lambda *_: 0.001)
    gpu = torch.device("cuda")
    capability = [(9, 0)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability[0])

    def chosen(**changed: Any) -> bool:
        settings: dict[str, Any] = {"device": gpu, "dtype": torch.bfloat16, "config": config}
        return flash4.fastest_kernel(**(settings | changed)) is flash4.attend

    assert chosen()
    assert not chosen(device=torch.device("cpu"))
    assert not chosen(dtype=torch.float32)
    assert not chosen(config=SimpleNamespace(**(vars(config) | {"head_dim": 64})))
    capability[0] = (10, 0)
    assert not chosen()


@pytest.mark.parametrize(
    ("gap", "says"),
    [(0.5, "differs from torch's kernel by 0.5"), (RuntimeError("no ptxas"), "no ptxas")],
)
def test_kernels_that_differ_or_cannot_be_compiled_are_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, gap: float | Exception, says: str
) -> None:
    def compared(*_: object) -> float:
        if isinstance(gap, Exception):
            raise gap
        return gap

    config: Any = SimpleNamespace(head_dim=128, num_attention_heads=4, num_key_value_heads=2)
    monkeypatch.setattr(flash4, "is_there", lambda: True)
    monkeypatch.setattr(flash4, "_gap", compared)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    with pytest.warns(UserWarning, match=says):
        kernel = flash4.fastest_kernel(torch.device("cuda"), torch.bfloat16, config)
    assert kernel is flash4.varlen_attn
