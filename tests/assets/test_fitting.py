"""The optimizer, the schedule and the loss of the warm start."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from assets.warmstart.text.documents import Document
from assets.warmstart.training.fitting import Stage, fit, lr_share
from assets.warmstart.training.model import build_model, load_model, save_model, tiny_config
from assets.warmstart.training.muon import Muon, orthogonalised


def tiny(seed: int = 0) -> Qwen3ForCausalLM:
    torch.set_num_threads(1)
    return build_model(tiny_config(vocab_size=64, end_of_turn_id=2, pad_id=0), seed=seed)


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 32, 16), (2, 16, 32), (1, 16, 16)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
        assert values.min() > 0.3
        assert values.max() < 1.3


def test_muon_steps_against_the_gradient_with_the_size_asked_for() -> None:
    weight = torch.nn.Parameter(torch.zeros(16, 16))
    weight.grad = torch.eye(16)
    Muon([weight], lr=0.1, weight_decay=0.0).step()
    assert torch.linalg.matrix_norm(weight.detach(), 2) == pytest.approx(0.1, rel=0.35)
    assert torch.all(weight.detach().diagonal() < 0)


def test_the_learning_rate_stays_flat_and_falls_to_a_twentieth() -> None:
    stage = Stage(name="s", num_steps=100, batch_size=1)
    assert lr_share(stage, 0) == lr_share(stage, 59) == 1.0
    assert lr_share(stage, 80) == pytest.approx(0.525)
    assert lr_share(stage, 100) == pytest.approx(0.05)


def test_a_model_starts_out_attending_to_what_followed_the_same_token() -> None:
    model = build_model(tiny_config(vocab_size=512, end_of_turn_id=2, pad_id=0), seed=1)
    model.set_attn_implementation("eager")
    once = torch.randint(10, 512, (4, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        attended = model(torch.cat([once, once], 1), output_attentions=True).attentions
    late = torch.arange(16, 31)
    assert attended[0][:, 0, late, late - 1].mean() > 0.9
    assert attended[1][:, 0, late, late - 15].mean() > 5 / 31


def test_tokens_outside_the_mask_do_not_count() -> None:
    model = tiny()
    ids = tuple(range(10, 20))
    mask = (False,) * 9 + (True,)
    before = model(torch.tensor([ids])).logits[0, 3, 14].item()
    fit(
        model,
        Stage(name="s", num_steps=3, batch_size=2),
        lambda count: [Document(token_ids=ids, loss_mask=mask)] * count,
        lambda line: None,
    )
    logits = model(torch.tensor([ids])).logits[0]
    assert logits[8].argmax() == 19
    assert logits[3, 14].item() != pytest.approx(before)
    assert logits[3].argmax() != 14


def test_padding_changes_nothing() -> None:
    documents = [
        Document(token_ids=tuple(range(10, 10 + n)), loss_mask=(False,) + (True,) * (n - 1))
        for n in (4, 9)
    ]
    results = []
    for micro_batch_size in (1, 2):
        model = tiny()
        stage = Stage(name="s", num_steps=1, batch_size=2, micro_batch_size=micro_batch_size)
        fit(model, stage, lambda count: documents, lambda line: None)
        results.append(model.model.embed_tokens.weight.detach())
    assert torch.allclose(results[0], results[1], atol=1e-5)


def test_averaging_keeps_the_weights_between_start_and_end() -> None:
    ids = tuple(range(10, 20))
    document = Document(token_ids=ids, loss_mask=(False,) + (True,) * 9)
    moved = []
    for averaging in (None, 0.9, 0.999999):
        model = tiny()
        start = model.model.embed_tokens.weight.detach().clone()
        stage = Stage(name="s", num_steps=4, batch_size=1, averaging=averaging)
        fit(model, stage, lambda count: [document] * count, lambda line: None)
        moved.append((model.model.embed_tokens.weight.detach() - start).norm().item())
    assert moved[0] > moved[1] > 100 * moved[2]


def test_a_large_epsilon_keeps_tokens_that_do_not_occur_where_they_are() -> None:
    ids = tuple(range(10, 20))
    document = Document(token_ids=ids, loss_mask=(False,) + (True,) * 9)
    moved = []
    for eps in (1e-8, 1e-2):
        model = tiny()
        start = model.model.embed_tokens.weight.detach().clone()
        stage = Stage(name="s", num_steps=4, batch_size=1, embedding_eps=eps)
        fit(model, stage, lambda count: [document] * count, lambda line: None)
        moved.append((model.model.embed_tokens.weight.detach() - start)[40:].norm().item())
    assert moved[1] < moved[0] / 5


def test_what_is_saved_is_what_the_model_became(tmp_path: Path) -> None:
    model = tiny()
    checksum = save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert len(checksum) == 64
    assert loaded.config.architectures == ["Qwen3ForCausalLM"]
    ids = torch.tensor([[11, 12, 13]])
    assert torch.equal(model(ids).logits, loaded(ids).logits)
