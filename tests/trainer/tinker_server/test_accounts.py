"""Two keys are two accounts: neither reads, changes, or hears of what the other one made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import tinker

from tests.trainer.tinker_server.test_protocol import WAIT
from tests.trainer.workers.tinker.server.local import KEY, NAME, tinker_server, write_model
from trainer.tinker_server.__main__ import main
from trainer.tinker_server.accounts import Accounts, account_of, new_session_id
from trainer.tinker_server.settings import TinkerServerSettings

THIEF = "tml-thief"
MINE = {"user_metadata": {"project": "crownjewel"}}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with two keys."""
    monkeypatch.setattr("tests.trainer.workers.tinker.server.local.KEY", f"{KEY},{THIEF}")
    with tinker_server(write_model(tmp_path / "model"), tmp_path / "state") as url:
        yield url


def test_an_account_sees_nothing_of_another_and_ends_nothing_of_it(shared: str) -> None:
    owner = tinker.ServiceClient(api_key=KEY, base_url=shared, **MINE)
    training = owner.create_lora_training_client(base_model=NAME, rank=2)
    saved = training.save_state("kept").result(WAIT).path
    for_sampling = training.save_weights_for_sampler("drawn").result(WAIT).path
    model_id = training.model_id
    session_id = model_id.partition(":")[0]
    sampler_id = f"{session_id}:sample:0"
    with (
        httpx.Client(base_url=f"{shared}/api/v1", headers={"X-API-Key": THIEF}) as thief,
        httpx.Client(base_url=f"{shared}/api/v1", headers={"X-API-Key": KEY}) as own,
    ):
        job = own.post("/unload_model", json={"model_id": "s-0:train:0"})
        assert job.status_code == 404
        job = own.post("/save_weights", json={"model_id": model_id, "path": "again"}).json()
        sampler = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": NAME}
        assert own.post("/create_sampling_session", json=sampler).is_success
        assert own.get(f"/samplers/{sampler_id}").is_success
        for path in ("/training_runs", "/checkpoints", "/sessions"):
            assert session_id in own.get(path).text, path
            assert session_id not in thief.get(path).text, path
        checkpoints = f"/training_runs/{model_id}/checkpoints"
        for name in ("weights/kept", "sampler_weights/drawn"):
            assert thief.get(f"{checkpoints}/{name}/archive").status_code == 404
            assert thief.delete(f"{checkpoints}/{name}").status_code == 404
            ttl = thief.put(f"{checkpoints}/{name}/ttl", json={"ttl_seconds": 1})
            assert ttl.status_code == 404
        for path in (
            f"/training_runs/{model_id}", checkpoints, f"/sessions/{session_id}",
            f"/samplers/{sampler_id}",
        ):  # fmt: skip
            assert thief.get(path).status_code == 404, path
        mine = thief.post("/create_session", json={"tags": [], "sdk_version": "0.24.1"}).json()
        theirs = {"session_id": mine["session_id"]}
        prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
        adam = {"learning_rate": 1.0, "beta1": 0.9, "beta2": 0.9, "eps": 1e-8}
        loss = {"data": [{"model_input": prompt, "loss_fn_inputs": {}}], "loss_fn": "cross_entropy"}
        requests = {
            "/session_heartbeat": {"session_id": session_id},
            "/create_model": {"session_id": session_id, "model_seq_id": 9, "base_model": NAME,
                              "lora_config": {"rank": 2}},
            "/get_info": {"model_id": model_id},
            "/unload_model": {"model_id": model_id},
            "/forward": {"model_id": model_id, "forward_input": loss},
            "/forward_backward": {"model_id": model_id, "forward_backward_input": loss},
            "/optim_step": {"model_id": model_id, "adam_params": adam},
            "/save_weights": {"model_id": model_id, "path": "kept", "overwrite": True},
            "/load_weights": {"model_id": model_id, "path": saved, "optimizer": True},
            "/save_weights_for_sampler": {"model_id": model_id, "path": "x"},
            "/create_sampling_session": theirs | {"sampling_session_seq_id": 0,
                                                  "model_path": for_sampling},
            "/asample": {"sampling_session_id": sampler_id, "seq_id": 0, "prompt": prompt,
                         "num_samples": 1, "sampling_params": {"max_tokens": 1}},
            "/weights_info": {"tinker_path": saved},
        }  # fmt: skip
        for path, body in requests.items():
            answer = thief.post(path, json=body)
            assert answer.status_code == 404, (path, answer.text)
        result = thief.post("/retrieve_future", json={"request_id": job["request_id"]})
        assert result.status_code == 410
        names = [each["checkpoint_id"] for each in own.get(checkpoints).json()["checkpoints"]]
        assert {"weights/kept", "sampler_weights/drawn"} <= set(names)
    assert training.save_state("later").result(WAIT).path.endswith("/weights/later")


def test_the_second_account_trains_and_loads_its_own_weights(shared: str) -> None:
    client = tinker.ServiceClient(api_key=THIEF, base_url=shared)
    training = client.create_lora_training_client(base_model=NAME, rank=2)
    path = training.save_state("own").result(WAIT).path
    again = client.create_training_client_from_state(path)
    assert again.model_id != training.model_id
    assert account_of(path) == account_of(again.model_id) != ""


def test_names_say_whose_they_are() -> None:
    accounts = Accounts((KEY, THIEF))
    assert accounts.of_key("tml-wrong") is None
    assert accounts.of_key("") is None
    assert accounts.of_key(f"{KEY},{THIEF}") is None
    first, second = accounts.of_key(KEY), accounts.of_key(THIEF)
    assert first == ""
    assert second is not None
    for account in (first, second):
        session = new_session_id(account)
        assert account_of(session) == account
        assert account_of(f"tinker://{session}:train:0/weights/a.b") == account
    assert account_of("s-0123456789abcdef:sample:1") == "", "of a server with one key"
    settings = TinkerServerSettings(model_dir=Path(), model_name="", state_dir=Path())
    assert settings.accounts.keys == ("tml-local",)


@pytest.mark.parametrize("keys", ["tml-a,sk-b", "tml-a,tml-a", "tml-a,"])
def test_keys_that_no_client_could_send_are_wrong_usage(
    keys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--api-key", keys, "--state-dir", str(tmp_path)])
    assert "each key must begin with tml-" in capsys.readouterr().err
