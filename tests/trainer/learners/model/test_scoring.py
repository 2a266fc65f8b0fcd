"""Log-probs in chunks are the plain ones, and no tensor outgrows a chunk."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.learners.model import scoring
from trainer.learners.model.scoring import token_logprobs

A, D, V = 37, 16, 500
CHUNKS = [1, 8, 36, 37, 1000]


def inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(A, D, generator=generator).to(dtype).requires_grad_()
    head = torch.randn(V, D, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(0, V, (A,), generator=generator)
    temperatures = torch.rand(A, generator=generator) + 0.5
    return hidden, head, targets, temperatures


def naive(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, temperatures: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs = ((hidden @ head.T).float() / temperatures[:, None]).log_softmax(-1)
    picked = logprobs.gather(1, targets[:, None]).squeeze(1)
    return picked, -(logprobs.exp() * logprobs).sum(-1)


def gradients(scored: torch.Tensor, *of: torch.Tensor) -> tuple[torch.Tensor, ...]:
    slopes = torch.linspace(-1.0, 2.0, A)
    return torch.autograd.grad((scored * slopes).sum(), of)


class Largest(TorchDispatchMode):
    """Remembers the most elements that any tensor had which an operation returned."""

    numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for each in torch.utils._pytree.tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self.numel = max(self.numel, each.numel())
        return result


@pytest.mark.parametrize("chunk", CHUNKS)
def test_chunked_log_probs_entropies_and_gradients_equal_the_plain_ones(chunk: int) -> None:
    hidden, head, targets, temperatures = inputs()
    expected, entropies = naive(hidden, head, targets, temperatures)
    found, found_entropies = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=chunk)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(found_entropies, entropies, atol=1e-5, rtol=1e-5)
    assert not found_entropies.requires_grad
    for mine, plain in zip(
        gradients(found, hidden, head), gradients(expected, hidden, head), strict=True
    ):
        torch.testing.assert_close(mine, plain, atol=1e-5, rtol=1e-5)


def test_in_float64_reference_terms_the_gradient_is_right() -> None:
    hidden, head, targets, temperatures = inputs()
    found, _ = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=8)
    wide = [tensor.detach().double().requires_grad_() for tensor in (hidden, head)]
    logits = wide[0] @ wide[1].T / temperatures[:, None].double()
    expected = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    slopes = torch.linspace(-1.0, 2.0, A).double()
    truth = torch.autograd.grad((expected * slopes).sum(), wide)
    for mine, exact in zip(gradients(found, hidden, head), truth, strict=True):
        torch.testing.assert_close(mine.double(), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 8, 18])
def test_no_tensor_outgrows_a_chunk_forward_or_backward(chunk: int) -> None:
    hidden, head, targets, temperatures = inputs()
    with Largest() as largest:
        found, _ = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=chunk)
        gradients(found, hidden, head)
    assert largest.numel == max(chunk * V, V * D)
    with Largest() as plain:
        scored, _ = naive(hidden, head, targets, temperatures)
        gradients(scored, hidden, head)
    assert plain.numel == A * V


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, head, targets, temperatures = inputs()
    head = head.detach()
    found, _ = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=8)
    (mine,) = gradients(found, hidden)
    plain, _ = naive(hidden, head, targets, temperatures)
    torch.testing.assert_close(mine, gradients(plain, hidden)[0], atol=1e-5, rtol=1e-5)


def test_in_bfloat16_scores_are_added_up_in_float32() -> None:
    hidden, head, targets, temperatures = inputs(torch.bfloat16)
    expected, _ = naive(hidden, head, targets, temperatures)
    slopes = gradients(expected, hidden, head)
    for chunk in CHUNKS:
        found, _ = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=chunk)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        for mine, plain in zip(gradients(found, hidden, head), slopes, strict=True):
            assert mine.dtype == torch.bfloat16
            torch.testing.assert_close(mine, plain, atol=0.1, rtol=0.02)


def test_on_a_gpu_no_score_is_rounded_on_its_way_to_float32() -> None:
    """With tensors that only say that they are on a GPU: which product is asked for."""
    with FakeTensorMode():
        left, right = (
            torch.empty(*shape, dtype=torch.bfloat16, device="cuda") for shape in ((3, 4), (4, 5))
        )
        with Products() as products:
            scores = scoring._product(left, right)
        assert (scores.dtype, scores.shape, scores.device.type) == (torch.float32, (3, 5), "cuda")
    assert products.names == ["aten.mm.dtype"]


class Products(TorchDispatchMode):
    """Names of the products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "mm" in str(func):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))
