"""An adapter of the head: what the SDK asks for by default, against the formula and an engine."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest
import tinker
import torch
from safetensors.torch import load
from tinker import types
from transformers import Qwen3ForCausalLM

from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from tests.trainer.tinker_server.test_protocol import ADAM, IDS, WAIT, scores, supervised
from tests.trainer.workers.tinker.server.local import KEY, NAME, tinker_server

RANK = 4


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "own"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, bool]]:
    """A server of a model whose head is its embedding, and of one with a head of its own."""
    root = tmp_path_factory.mktemp("head")
    tiny_model(tied=request.param).save_pretrained(root / "model")
    with tinker_server(root / "model", root / "state", max_models=8) as url:
        yield url, request.param


def client_of(url: str) -> tinker.ServiceClient:
    return tinker.ServiceClient(api_key=KEY, base_url=url)


def by_formula(model: Qwen3ForCausalLM, archive: bytes) -> Qwen3ForCausalLM:
    """Add each layer's B A 32/r to its weight, and the head's to the head alone."""
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        file = tar.extractfile("adapter_model.safetensors")
        assert file is not None
        factors = load(file.read())
    if model.config.tie_word_embeddings:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for name, first in factors.items():
            if ".lora_A." in name:
                layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                second = factors[name.replace("lora_A", "lora_B")]
                model.get_submodule(layer).weight.add_(second @ first * (32 / RANK))
    return model


def test_the_defaults_of_the_sdk_train_the_head_too(served: tuple[str, bool]) -> None:
    url, tied = served
    client = client_of(url)
    training = client.create_lora_training_client(base_model=NAME, rank=RANK)
    base = reference_logprobs(tiny_model(tied=tied), IDS)
    torch.testing.assert_close(scores(training), base, atol=1e-4, rtol=0)
    for _ in range(3):
        training.forward_backward([supervised()], "cross_entropy")
        training.optim_step(ADAM).result(WAIT)
    path = training.save_weights_for_sampler("learned").result(WAIT).path
    link = client.create_rest_client().get_checkpoint_archive_url_from_tinker_path(path)
    archive = httpx.get(link.result(WAIT).url).content
    learned = scores(training)
    assert float((learned - base).sum()) > 5.0
    expected = reference_logprobs(by_formula(tiny_model(tied=tied), archive), IDS)
    torch.testing.assert_close(learned, expected, atol=1e-4, rtol=0)
    sampler = client.create_sampling_client(model_path=path)
    drawn = sampler.compute_logprobs(types.ModelInput.from_ints(IDS)).result(WAIT)[1:]
    assert drawn == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_head_alone_can_be_adapted_and_its_gradient_is_that_of_the_formula(
    served: tuple[str, bool],
) -> None:
    """After one step of plain SGD's sign (Adam's first), B has moved against its gradient."""
    url, tied = served
    training = client_of(url).create_lora_training_client(
        base_model=NAME, rank=RANK, train_attn=False, train_mlp=False, seed=1
    )
    info = training.get_info()
    assert info.lora_rank == RANK
    training.forward_backward([supervised()], "cross_entropy")
    norm = (training.optim_step(ADAM).result(WAIT).metrics or {})["grad_norm"]
    model = tiny_model(tied=tied)
    ids = torch.tensor([IDS])
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[0].detach()
    archive = httpx.get(
        client_of(url)
        .create_rest_client()
        .get_checkpoint_archive_url_from_tinker_path(
            training.save_weights_for_sampler("one").result(WAIT).path
        )
        .result(WAIT)
        .url
    ).content
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        file = tar.extractfile("adapter_model.safetensors")
        assert file is not None
        factors = load(file.read())
    assert set(factors) == {f"base_model.model.lm_head.lora_{x}.weight" for x in "AB"}
    first = factors["base_model.model.lm_head.lora_A.weight"]
    second = torch.zeros(model.config.vocab_size, RANK, requires_grad=True)
    logits = hidden @ model.lm_head.weight.detach().T + (32 / RANK) * hidden @ first.T @ second.T
    loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
    torch.autograd.backward(loss)
    assert second.grad is not None
    # At first B is 0, so that A has no gradient: the norm is that of B's.
    assert norm == pytest.approx(float(second.grad.norm()), rel=1e-4)


def test_a_state_with_a_head_is_resumed_and_one_without_is_another_models(
    served: tuple[str, bool],
) -> None:
    client = client_of(served[0])
    training = client.create_lora_training_client(base_model=NAME, rank=RANK)
    training.forward_backward([supervised(random_ids(12, seed=1))], "cross_entropy")
    training.optim_step(ADAM).result(WAIT)
    path = training.save_state("kept").result(WAIT).path
    again = client.create_training_client_from_state_with_optimizer(path)
    torch.testing.assert_close(scores(again), scores(training), atol=1e-6, rtol=0)
    other = client.create_lora_training_client(base_model=NAME, rank=RANK, train_unembed=False)
    with pytest.raises(tinker.TinkerError, match="another model, rank or set of layers"):
        other.load_state(path).result(WAIT)


def test_the_first_step_moves_the_factors_of_the_head(tmp_path: Path) -> None:
    """As the archive has them: peft's names, beside those of the other layers."""
    tiny_model().save_pretrained(tmp_path / "model")
    with tinker_server(tmp_path / "model", tmp_path / "state") as url:
        client = client_of(url)
        training = client.create_lora_training_client(base_model=NAME)
        assert training.get_info().lora_rank == 32
        info = client.create_rest_client().get_weights_info_by_tinker_path(
            training.save_state("first").result(WAIT).path
        )
        assert info.result(WAIT).train_unembed is True
