"""Several clients on one server: none takes away what another one uses, or is blamed for it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import tinker
import torch
from tinker import types

from tests.trainer.fixtures.tiny import VOCAB
from tests.trainer.tinker_server.test_protocol import IDS, WAIT
from tests.trainer.workers.tinker.server.local import KEY, NAME, tinker_server, write_model
from trainer.engines.torch.decoder import Decoder

PROMPT = types.ModelInput.from_ints(IDS[:8])


@pytest.fixture
def clients(url: str) -> tuple[tinker.ServiceClient, tinker.ServiceClient]:
    return (
        tinker.ServiceClient(api_key=KEY, base_url=url),
        tinker.ServiceClient(api_key=KEY, base_url=url),
    )


BAD = {
    "token": (types.ModelInput.from_ints([VOCAB]), {"max_tokens": 4}, f"none of the {VOCAB}"),
    "negative": (types.ModelInput.from_ints([-1]), {"max_tokens": 4}, f"none of the {VOCAB}"),
    "max_tokens": (PROMPT, {"max_tokens": -5}, "max_tokens"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_a_request_that_cannot_be_drawn_ends_nobody_elses(
    clients: tuple[tinker.ServiceClient, tinker.ServiceClient], case: str
) -> None:
    prompt, params, sentence = BAD[case]
    stranger = clients[0].create_sampling_client(base_model=NAME)
    long = types.SamplingParams(max_tokens=120, seed=1)
    drawing = [stranger.sample(PROMPT, num_samples=2, sampling_params=long) for _ in range(2)]
    careless = clients[1].create_sampling_client(base_model=NAME)
    with pytest.raises(tinker.TinkerError, match=sentence) as refused:
        careless.sample(
            prompt, num_samples=1, sampling_params=types.SamplingParams(**params)
        ).result(WAIT)
    assert all(len(each.result(WAIT).sequences) == 2 for each in drawing)
    if isinstance(refused.value, tinker.RequestFailedError):
        assert refused.value.category is types.RequestErrorCategory.User


def test_an_engine_that_fails_is_the_servers_fault_and_serves_the_next_request(
    clients: tuple[tinker.ServiceClient, tinker.ServiceClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = clients[0].create_sampling_client(base_model=NAME)
    params = types.SamplingParams(max_tokens=6, seed=1)
    before = sampler.sample(PROMPT, num_samples=1, sampling_params=params).result(WAIT)

    def broken(self: Decoder, *args: object) -> torch.Tensor:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "hidden", broken)
        with pytest.raises(tinker.RequestFailedError, match="out of memory") as failed:
            sampler.sample(PROMPT, num_samples=1, sampling_params=params).result(WAIT)
    assert failed.value.category is types.RequestErrorCategory.Server
    after = sampler.sample(PROMPT, num_samples=1, sampling_params=params).result(WAIT)
    assert after.sequences[0].tokens == before.sequences[0].tokens


def test_no_tokens_are_drawn_where_none_are_wanted(
    clients: tuple[tinker.ServiceClient, tinker.ServiceClient],
) -> None:
    """As a client that scores a prompt, and nothing else, may ask for."""
    sampler = clients[0].create_sampling_client(base_model=NAME)
    scored = sampler.sample(
        PROMPT,
        num_samples=2,
        sampling_params=types.SamplingParams(max_tokens=0),
        include_prompt_logprobs=True,
    ).result(WAIT)
    assert [(each.tokens, each.stop_reason) for each in scored.sequences] == [([], "length")] * 2
    assert scored.prompt_logprobs == sampler.compute_logprobs(PROMPT).result(WAIT)


def test_a_reference_sampler_outlives_the_samplers_of_later_steps(
    clients: tuple[tinker.ServiceClient, tinker.ServiceClient],
) -> None:
    """As the reference of a KL term, or of a long evaluation."""
    training = clients[0].create_lora_training_client(base_model=NAME, rank=2)
    reference = training.save_weights_and_get_sampling_client()
    before = reference.compute_logprobs(PROMPT).result(WAIT)
    for _ in range(12):
        training.save_weights_and_get_sampling_client()
    assert reference.compute_logprobs(PROMPT).result(WAIT) == before


def test_a_client_waits_for_a_place_and_gets_that_of_one_that_is_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK ends no session: a process that has ended, however, just falls silent."""
    monkeypatch.setattr("trainer.tinker_server.service.PLACE_POLL_S", 0.02)
    with (
        tinker_server(write_model(tmp_path / "model"), tmp_path / "state", max_models=2) as url,
        httpx.Client(base_url=f"{url}/api/v1", headers={"X-API-Key": KEY}) as http,
    ):

        def post(path: str, **body: object) -> dict[str, str]:
            answer: dict[str, str] = http.post(path, json=body).json()
            return answer

        def create(session: str, number: int) -> dict[str, str]:
            job = post(
                "/create_model",
                session_id=session,
                model_seq_id=number,
                base_model=NAME,
                lora_config={"rank": 2},
            )
            return post("/retrieve_future", request_id=job["request_id"])

        alive, ended, late = [post("/create_session", sdk_version="0")["session_id"] for _ in "abc"]
        for each in (alive, ended):
            assert create(each, 0)["type"] == "create_model"
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(create, late, 0)
            while not waiting.done():
                assert "type" in post("/session_heartbeat", session_id=alive)
                time.sleep(0.05)
        assert waiting.result()["type"] == "create_model"
        assert http.post("/session_heartbeat", json={"session_id": ended}).status_code == 404
        # One that has all places itself would wait for itself.
        post("/unload_model", model_id=f"{alive}:train:0")
        assert create(late, 1)["type"] == "create_model"
        assert "maximum number of LoRA adapters (2)" in create(late, 2)["error"]


def test_a_client_that_waits_for_a_place_hears_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK logs it for its user."""
    monkeypatch.setattr("trainer.tinker_server.http.app.POLL_S", 0.05)
    monkeypatch.setattr("trainer.tinker_server.service.PLACE_POLL_S", 0.02)
    monkeypatch.setattr("trainer.tinker_server.service.PLACE_WAIT_S", 1.0)
    write_model(tmp_path / "model")
    with tinker_server(tmp_path / "model", tmp_path / "state", max_models=1) as url:
        holder, waiting = (tinker.ServiceClient(api_key=KEY, base_url=url) for _ in "ab")
        holder.create_lora_training_client(base_model=NAME, rank=2)
        # Nobody's heartbeat is due in so short a time.
        monkeypatch.setattr("trainer.tinker_server.service.UNHEARD_POLLS", 10**6)
        with pytest.raises(tinker.RequestFailedError, match="maximum number of LoRA adapters"):
            waiting.create_lora_training_client(base_model=NAME, rank=2)
    reason = "maximum number of LoRA adapters (1) reached"
    assert f"Model creation for {NAME} is paused. Reason: {reason}" in caplog.text
