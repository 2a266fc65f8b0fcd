"""What no client may send, and what every client is told of what is on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from pydantic import ValidationError

from tests.trainer.fixtures.tiny_model import write_tiny_model
from tests.trainer.tinker_server.test_protocol import ADAM, WAIT, scores, supervised
from tests.trainer.workers.tinker.server.local import KEY, NAME, tinker_server
from trainer.tinker_server import jobs
from trainer.tinker_server.__main__ import parser, settings_of
from trainer.tinker_server.http.bodies import MAX_BODY_BYTES
from trainer.tinker_server.wire import Adam, SampleRequest, SaveForSampler, SaveWeights

ADAM_FIELDS = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/api/v1", headers={"X-API-Key": KEY}, timeout=60.0) as each:
        yield each


def test_a_body_beyond_the_limit_is_refused_before_it_is_parsed(http: httpx.Client) -> None:
    body = b" " * (MAX_BODY_BYTES + 1)
    for path in ("forward_backward", "asample", "telemetry", "client/config"):
        refused = http.post(f"/{path}", content=body)
        assert refused.status_code == 413
        assert "send the data in several requests" in refused.json()["detail"]
    assert http.post("/telemetry", content=b" " * 1000).status_code == 200


def test_a_body_that_never_ends_is_refused_at_the_limit(http: httpx.Client) -> None:
    """Without a length in its header, as a stream has none."""
    num_sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal num_sent
        while num_sent < 8 * MAX_BODY_BYTES:
            num_sent += 2**20
            yield b" " * 2**20

    # The connection may be gone before the answer is read.
    with suppress(httpx.TransportError):
        assert http.post("/forward_backward", content=endless()).status_code == 413
    assert num_sent < 8 * MAX_BODY_BYTES


MODEL_AND_PATH = {"model_id": "a", "path": "a"}
NUMBERS: list[tuple[Any, dict[str, Any], str, float, float]] = [
    (Adam, ADAM_FIELDS, "learning_rate", -1.0, 0.0),
    (Adam, ADAM_FIELDS, "learning_rate", float("nan"), 1.0),
    (Adam, ADAM_FIELDS, "beta1", 1.5, 0.0),
    (Adam, ADAM_FIELDS, "beta2", 1.0, 0.9),
    (Adam, ADAM_FIELDS, "grad_clip_norm", -1.0, 0.0),
    (SampleRequest, {}, "max_tokens", -5, 0),
    (SampleRequest, {}, "temperature", float("inf"), 0.0),
    (SampleRequest, {}, "temperature", -1.0, 2.0),
    (SaveWeights, MODEL_AND_PATH, "ttl_seconds", -1, 1),
    (SaveForSampler, MODEL_AND_PATH, "ttl_seconds", 0, 1),
    (SaveForSampler, MODEL_AND_PATH, "ttl_seconds", 10**12, 10**9),
]


@pytest.mark.parametrize("case", NUMBERS, ids=lambda case: f"{case[2]}={case[3]}")
def test_numbers_without_a_meaning_are_refused(
    case: tuple[Any, dict[str, Any], str, float, float],
) -> None:
    kind, others, name, bad, good = case
    with pytest.raises(ValidationError, match=rf"(?m)^{name}$"):
        kind.model_validate(others | {name: bad})
    assert getattr(kind.model_validate(others | {name: good}), name) == good


def test_a_learning_rate_below_zero_changes_nothing(url: str) -> None:
    client = tinker.ServiceClient(api_key=KEY, base_url=url)
    training = client.create_lora_training_client(base_model=NAME, rank=2)
    training.forward_backward([supervised()], "cross_entropy").result(WAIT)
    before = scores(training)
    with pytest.raises(tinker.UnprocessableEntityError, match=r"learning_rate.*greater than"):
        training.optim_step(ADAM.model_copy(update={"learning_rate": -1.0})).result(WAIT)
    assert scores(training).equal(before)


@pytest.mark.parametrize("query", ["limit=abc", "limit=-1", "offset=-1", "offset=1.5"])
@pytest.mark.parametrize("path", ["training_runs", "checkpoints", "sessions"])
def test_a_page_that_is_none_is_the_clients_fault(
    http: httpx.Client, path: str, query: str
) -> None:
    refused = http.get(f"/{path}?{query}")
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(query.partition("=")[0])


def test_runs_checkpoints_and_sessions_can_be_told_apart(url: str) -> None:
    client = tinker.ServiceClient(api_key=KEY, base_url=url, user_metadata={"who": "a"})
    first = client.create_lora_training_client(base_model=NAME, rank=2)
    second = client.create_lora_training_client(base_model=NAME, rank=2, user_metadata={"b": "c"})
    first.save_weights_and_get_sampling_client()
    states = [first.save_state(name).result(WAIT).path for name in ("one", "two")]
    sampler = first.save_weights_for_sampler("drawn").result(WAIT).path
    rest = client.create_rest_client()
    run = rest.get_training_run(first.model_id).result(WAIT)
    assert run.last_checkpoint is not None
    assert run.last_sampler_checkpoint is not None
    assert run.last_checkpoint.tinker_path == states[1]
    assert run.last_sampler_checkpoint.tinker_path == sampler
    assert run.last_request_time == run.last_sampler_checkpoint.time
    assert run.user_metadata == {"who": "a"}
    assert rest.get_training_run(second.model_id).result(WAIT).user_metadata == {"b": "c"}
    newest = rest.list_user_checkpoints(limit=2).result(WAIT)
    assert [each.tinker_path for each in newest.checkpoints] == [sampler, states[1]]
    session = client.holder.get_session_id()
    found = rest.get_session(session).result(WAIT)
    assert found.training_run_ids == [first.model_id, second.model_id]
    assert len(found.sampler_ids) == 1
    assert session in rest.list_sessions(limit=1000).result(WAIT).sessions
    rest.set_checkpoint_ttl_from_tinker_path(sampler, 100).result(WAIT)
    assert rest.list_checkpoints(first.model_id).result(WAIT).checkpoints[-1].expires_at
    rest.set_checkpoint_ttl_from_tinker_path(sampler, None).result(WAIT)
    assert rest.list_checkpoints(first.model_id).result(WAIT).checkpoints[-1].expires_at is None
    with pytest.raises(tinker.BadRequestError, match="no public checkpoints"):
        rest.publish_checkpoint_from_tinker_path(sampler).result(WAIT)


def test_a_client_in_another_directory_finds_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--model ./tiny` named it by a path that holds in the server's directory only."""
    write_tiny_model(tmp_path / "here" / "tiny")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = ["--model", "./tiny", "--state-dir", str(tmp_path / "state"), "--api-key", KEY]
    settings = settings_of(parser().parse_args(options))
    with tinker_server(
        settings.model_dir, settings.state_dir, model_name=settings.model_name
    ) as url:
        monkeypatch.chdir(tmp_path / "there")
        client = tinker.ServiceClient(api_key=KEY, base_url=url)
        (model,) = client.get_server_capabilities().supported_models
        assert model.model_name == str(tmp_path / "here" / "tiny")
        training = client.create_lora_training_client(base_model=model.model_name, rank=2)
        sampler = client.create_sampling_client(base_model=model.model_name)
        for each in (training, sampler):
            assert len(each.get_tokenizer().encode("booking")) > 0


def test_the_tokenizer_of_a_model_of_the_hub_is_the_hubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client on another machine has no path of the server's."""
    monkeypatch.setattr("trainer.tinker_server.__main__.resolve_source", lambda *_: tmp_path)
    options = ["--model", "hf:Qwen/Qwen3-0.6B@abcdef0", "--state-dir", str(tmp_path)]
    settings = settings_of(parser().parse_args(options))
    assert (settings.tokenizer_id, settings.model_name) == ("Qwen/Qwen3-0.6B",) * 2


def test_a_session_with_too_many_requests_is_asked_to_wait(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_STARTED", 0)
    body = {"tags": [], "user_metadata": {}, "sdk_version": "test"}
    session = http.post("/create_session", json=body).json()["session_id"]
    model = {
        "session_id": session,
        "model_seq_id": 0,
        "base_model": NAME,
        "lora_config": {"rank": 2},
    }
    refused = http.post("/create_model", json=model)
    assert refused.status_code == 429, refused.text
    assert refused.headers["retry-after"] == "1"
    assert "wait for their results" in refused.json()["detail"]
