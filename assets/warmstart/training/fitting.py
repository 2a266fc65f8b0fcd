"""Supervised training on documents of which only some tokens count.

Muon orthogonalises the update of every hidden matrix (Jordan et al., 2024); AdamW takes the
embedding and the norms. Learning rates stay flat, then fall linearly to a twentieth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import Qwen3ForCausalLM

from assets.warmstart.text.documents import Document
from assets.warmstart.training.muon import Muon


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How one stage is trained. `flat_share` is the part of the steps before the decay starts."""

    name: str
    num_steps: int
    batch_size: int
    matrix_lr: float = 0.02
    other_lr: float = 5e-3
    norm_lr: float = 1e-2
    """Of the norms' gains: with normed queries and keys they alone can sharpen attention."""
    embedding_eps: float = 1e-8
    """Adam's epsilon for the embedding. A token that is hardly ever right gets a tiny push down at
    every step, which Adam would scale up to full size; an epsilon above it keeps rare tokens in
    reach."""
    flat_share: float = 0.6
    final_lr_share: float = 0.05
    micro_batch_size: int = 8
    averaging: float | None = None
    """Decay of the weight average that replaces the weights in the end; None: the last weights."""


def fit(
    model: Qwen3ForCausalLM,
    stage: Stage,
    draw: Callable[[int], Sequence[Document]],
    report: Callable[[str], None],
) -> None:
    """Train in place on `stage.num_steps` batches; `draw(n)` gives the next n documents."""
    optimizers = _optimizers(model, stage)
    start, losses, accuracies = time.perf_counter(), [], []
    average = [parameter.detach().clone() for parameter in model.parameters()]
    model.train()
    for step in range(stage.num_steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * lr_share(stage, step)
        loss, accuracy = _accumulate(model, draw(stage.batch_size), stage.micro_batch_size)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for mean, parameter in zip(average, model.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 1.0 - (stage.averaging or 0.0))
        losses.append(loss)
        accuracies.append(accuracy)
        if (step + 1) % 20 == 0 or step + 1 == stage.num_steps:
            report(
                f"{stage.name} step {step + 1}/{stage.num_steps} "
                f"loss {sum(losses[-20:]) / len(losses[-20:]):.4f} "
                f"token accuracy {sum(accuracies[-20:]) / len(accuracies[-20:]):.4f} "
                f"{time.perf_counter() - start:.0f} s"
            )
    with torch.no_grad():
        for mean, parameter in zip(average, model.parameters(), strict=True):
            parameter.copy_(mean)
    model.train(mode=False)


def lr_share(stage: Stage, step: int) -> float:
    """Share of the peak learning rate at `step`: flat, then linear down to `final_lr_share`."""
    flat_steps = stage.flat_share * stage.num_steps
    if step < flat_steps:
        return 1.0
    progress = (step - flat_steps) / max(stage.num_steps - flat_steps, 1.0)
    return 1.0 - (1.0 - stage.final_lr_share) * progress


def _optimizers(model: Qwen3ForCausalLM, stage: Stage) -> list[torch.optim.Optimizer]:
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and "embed_tokens" not in name
        (matrices if is_matrix else others).append(parameter)
    muon = Muon(matrices, lr=stage.matrix_lr)
    adamw = torch.optim.AdamW(
        [
            {
                "params": [p for p in others if p.ndim == 2],
                "lr": stage.other_lr,
                "eps": stage.embedding_eps,
            },
            {"params": [p for p in others if p.ndim == 1], "lr": stage.norm_lr},
        ],
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    for optimizer in (muon, adamw):
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return [muon, adamw]


def _accumulate(
    model: Qwen3ForCausalLM, documents: Sequence[Document], micro_batch_size: int
) -> tuple[float, float]:
    """Add the gradient of the mean token loss; return that loss and the token accuracy."""
    documents = sorted(documents, key=lambda document: len(document.token_ids))
    total = sum(sum(document.loss_mask) for document in documents)
    loss_sum, correct = 0.0, 0
    for first in range(0, len(documents), micro_batch_size):
        ids, mask = _pad(documents[first : first + micro_batch_size])
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        wanted = mask[:, 1:]
        logits = model.lm_head(hidden[wanted])
        targets = ids[:, 1:][wanted]
        loss = F.cross_entropy(logits, targets, reduction="sum") / total
        loss.backward()  # type: ignore[no-untyped-call]
        loss_sum += float(loss.detach())
        correct += int((logits.detach().argmax(-1) == targets).sum())
    return loss_sum, correct / total


def _pad(documents: Sequence[Document]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids [B, T] and loss mask [B, T]; causal attention never looks at the padding."""
    width = max(len(document.token_ids) for document in documents)
    ids = torch.zeros(len(documents), width, dtype=torch.long)
    mask = torch.zeros(len(documents), width, dtype=torch.bool)
    for row, document in enumerate(documents):
        length = len(document.token_ids)
        ids[row, :length] = torch.tensor(document.token_ids)
        mask[row, :length] = torch.tensor(document.loss_mask)
    return ids, mask
