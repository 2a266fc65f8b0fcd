"""What is computed of a chunk of scores on a GPU, against autograd over plain torch."""

from __future__ import annotations

import runpy
from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from trainer.learners.model.kernels import head_chunks
from trainer.learners.model.kernels.head_chunks import slopes, statistics

VOCAB = 331


def chunk(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, temperatures, targets (the first and the last token too), gradient of log-probs."""
    generator = torch.Generator().manual_seed(rows)
    scores = 4.0 * torch.randn(rows, VOCAB, generator=generator)
    targets = torch.randint(VOCAB, (rows,), generator=generator)
    targets[0], targets[-1] = 0, VOCAB - 1
    temperatures = 0.5 + torch.rand(rows, generator=generator)
    return scores, temperatures, targets, torch.randn(rows, generator=generator)


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_they_are_those_of_a_plain_log_softmax_with_its_gradient(rows: int) -> None:
    scores, temperatures, targets, grad = chunk(rows)
    leaf = scores.clone().requires_grad_()
    plain = (leaf / temperatures.unsqueeze(1)).log_softmax(-1)
    chosen = plain.gather(1, targets.unsqueeze(1)).squeeze(1)
    torch.autograd.backward((chosen * grad).sum())
    norms, logprobs, entropies = statistics(scores, temperatures, targets)
    torch.testing.assert_close(logprobs, chosen.detach())
    torch.testing.assert_close(entropies, -(plain.exp() * plain).sum(1).detach())
    scale = (grad / temperatures).unsqueeze(1)
    found = slopes(scores, temperatures, norms, targets, scale, torch.float32)
    assert leaf.grad is not None
    torch.testing.assert_close(found, leaf.grad)
    assert slopes(scores, temperatures, norms, targets, scale, torch.bfloat16).dtype == (
        torch.bfloat16
    )


def test_chunks_of_any_length_share_compiled_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    # The compiler proper makes kernels of a GPU; how often it is asked to is the same here.
    graphs = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=graphs))
    # Read apart from the import, into which a run with coverage has put probes: dynamo would trace
    # them.
    plain = runpy.run_path(head_chunks.__file__)
    function = plain["compiled"](plain["statistics"])
    for rows in (7, 64, 9, 1, 2, 33):
        scores, temperatures, targets, _ = chunk(rows)
        found = function(scores, temperatures, targets)
        torch.testing.assert_close(found, statistics(scores, temperatures, targets))
    assert graphs.frame_count <= 2, "a chunk of one token may have a form of its own"
