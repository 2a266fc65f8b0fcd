"""Log-probs of chosen tokens, computed in chunks: never all tokens' scores over the vocabulary.

The head's output for one chunk of tokens is the largest tensor there is, forward and backward:
the backward pass computes each chunk again. 64k tokens of a 151k vocabulary would otherwise take
about 40 GB per sequence.
Legend: A action tokens, C tokens of one chunk, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from trainer.learners.model.kernels.head_chunks import compiled, slopes, statistics


def token_logprobs(
    hidden_AD: torch.Tensor,
    head_VD: torch.Tensor,
    targets_A: torch.Tensor,
    temperatures_A: torch.Tensor,
    *,
    chunk_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies, each [A] float32, of softmax(hidden x head / temperature).

    `targets_A` are the tokens to score. Gradients flow from the log-probs into hidden and head
    and are those of the plain computation; the entropies carry none.
    """
    scored: tuple[torch.Tensor, torch.Tensor] = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_AD, head_VD, targets_A, temperatures_A, chunk_tokens
    )
    return scored


def adapted_weight(layer: torch.nn.Module) -> torch.Tensor:
    """Return a linear layer's weight with its adapter, if it has one that is not disabled.

    For a layer whose weight is used without a call of it. With an adapter it is a new tensor of the
    weight's size, through which gradients reach the factors.
    """
    weight: torch.Tensor = layer.weight  # type: ignore[assignment]
    # By its attributes: its class is peft's, which only runs that train adapters import.
    if not hasattr(layer, "lora_A") or layer.disable_adapters:
        return weight
    lora: Any = layer
    (name,) = lora.active_adapters
    first, second = (each[name].weight for each in (lora.lora_A, lora.lora_B))
    delta: torch.Tensor = lora.scaling[name] * second @ first
    return weight + delta


class _TokenLogprobs(torch.autograd.Function):
    """Keeps hidden states and one log-sum-exp per token for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no useful type
        hidden_AD: torch.Tensor,
        head_VD: torch.Tensor,
        targets_A: torch.Tensor,
        temperatures_A: torch.Tensor,
        chunk_tokens: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        norms_A = hidden_AD.new_empty(len(targets_A), dtype=torch.float32)
        logprobs_A, entropies_A = torch.empty_like(norms_A), torch.empty_like(norms_A)
        probs_CV = None
        for rows in _chunks(len(targets_A), chunk_tokens):
            if hidden_AD.is_cuda:
                columns = (temperatures_A[rows], targets_A[rows])
                scores_CV = _product(hidden_AD[rows], head_VD.T)
                norms_A[rows], logprobs_A[rows], entropies_A[rows] = compiled(statistics)(
                    scores_CV, *columns
                )
                del scores_CV
                continue
            scores_CV = _logits(hidden_AD[rows], head_VD, temperatures_A[rows])
            norms_A[rows] = scores_CV.logsumexp(1)
            scores_CV.sub_(norms_A[rows].unsqueeze(1))
            logprobs_A[rows] = scores_CV.gather(1, targets_A[rows].unsqueeze(1)).squeeze(1)
            probs_CV = scores_CV.exp()
            entropies_A[rows] = -torch.linalg.vecdot(probs_CV, scores_CV)
        ctx.save_for_backward(hidden_AD, head_VD, targets_A, temperatures_A, norms_A)
        ctx.chunk_tokens = chunk_tokens
        # A single chunk exists anyway: kept, it need not be computed again.
        ctx.probs_CV = probs_CV if len(targets_A) <= chunk_tokens else None
        ctx.mark_non_differentiable(entropies_A)
        return logprobs_A, entropies_A

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        grad_A: torch.Tensor,
        _: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        hidden_AD, head_VD, targets_A, temperatures_A, norms_A = ctx.saved_tensors
        wants_hidden, wants_head = ctx.needs_input_grad[:2]
        hidden_grad_AD = torch.zeros_like(hidden_AD) if wants_hidden else None
        head_grad_VD = torch.zeros_like(head_VD, dtype=torch.float32) if wants_head else None
        for rows in _chunks(len(targets_A), ctx.chunk_tokens):
            temperatures_C, targets_C = temperatures_A[rows], targets_A[rows]
            scale_C1 = (grad_A[rows] / temperatures_C).unsqueeze(1)
            if hidden_AD.is_cuda:
                scores_CV = _product(hidden_AD[rows], head_VD.T)
                slopes_CV = compiled(slopes)(
                    scores_CV, temperatures_C, norms_A[rows], targets_C, scale_C1, head_VD.dtype
                )
                del scores_CV
            else:
                slopes_CV, ctx.probs_CV = ctx.probs_CV, None
                if slopes_CV is None:
                    slopes_CV = _logits(hidden_AD[rows], head_VD, temperatures_C)
                    slopes_CV.sub_(norms_A[rows].unsqueeze(1)).exp_()
                slopes_CV.mul_(-scale_C1).scatter_add_(1, targets_C.unsqueeze(1), scale_C1)
                slopes_CV = slopes_CV.to(head_VD.dtype)
            if hidden_grad_AD is not None:
                hidden_grad_AD[rows] = slopes_CV @ head_VD
            if head_grad_VD is not None:
                _add_product(head_grad_VD, slopes_CV.T, hidden_AD[rows])
        if head_grad_VD is not None:
            head_grad_VD = head_grad_VD.to(head_VD.dtype)
        return hidden_grad_AD, head_grad_VD, None, None, None


def _chunks(length: int, chunk_tokens: int) -> list[slice]:
    return [slice(start, start + chunk_tokens) for start in range(0, length, chunk_tokens)]


def _logits(
    hidden_CD: torch.Tensor, head_VD: torch.Tensor, temperatures_C: torch.Tensor
) -> torch.Tensor:
    """[C, V] float32, at the temperature; a tensor of its own that may be written to."""
    return _product(hidden_CD, head_VD.T).div_(temperatures_C.unsqueeze(1))


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the product in float32; GPUs need not round it to the factors' bfloat16 before.

    vLLM keeps it so too, with `head_dtype` float32 (`trainer.engines.vllm.options`).
    """
    if left.device.type == "cuda" and left.dtype == torch.bfloat16:
        return torch.mm(left, right, out_dtype=torch.float32)
    return (left @ right).float()


def _add_product(sum_VD: torch.Tensor, left_VC: torch.Tensor, right_CD: torch.Tensor) -> None:
    """Add the product of two factors to a float32 sum, in place."""
    if left_VC.device.type == "cuda" and left_VC.dtype == torch.bfloat16:
        # In one kernel, and the product is not rounded to bfloat16 before.
        torch.addmm(sum_VD, left_VC, right_CD, out_dtype=torch.float32, out=sum_VD)
        return
    sum_VD += left_VC @ right_CD
