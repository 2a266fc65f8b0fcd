"""The pinned SDK, unmodified, against our server: every call that a client of RL makes."""

from __future__ import annotations

import tarfile
import time
from io import BytesIO
from pathlib import Path

import httpx
import pytest
import tinker
import torch
from tinker import types

from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from tests.trainer.workers.tinker.server.local import KEY, NAME, port_of, tinker_server, write_model

IDS = random_ids(20, seed=3)
ADAM = types.AdamParams(learning_rate=1e-2)
WAIT = 60.0


@pytest.fixture
def client(url: str) -> tinker.ServiceClient:
    return tinker.ServiceClient(api_key=KEY, base_url=url)


def train(client: tinker.ServiceClient, *, rank: int = 4) -> tinker.TrainingClient:
    return client.create_lora_training_client(base_model=NAME, rank=rank, seed=7)


def datum(ids: list[int] = IDS, **inputs: list[float]) -> types.Datum:
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": ids[1:], **inputs},  # type: ignore[dict-item]
    )


def supervised(ids: list[int] = IDS) -> types.Datum:
    return datum(ids, weights=[1.0] * (len(ids) - 1))


def drawn(advantage: float, ids: list[int] = IDS) -> types.Datum:
    logprobs = reference_logprobs(tiny_model(), ids).tolist()
    return datum(ids, logprobs=logprobs, advantages=[advantage] * len(logprobs))


def scores(training: tinker.TrainingClient, ids: list[int] = IDS) -> torch.Tensor:
    output = training.forward([supervised(ids)], "cross_entropy").result(WAIT)
    return torch.tensor(output.loss_fn_outputs[0]["logprobs"].data)


def test_the_server_says_what_it_has(client: tinker.ServiceClient, url: str) -> None:
    (model,) = client.get_server_capabilities().supported_models
    assert (model.model_name, model.max_context_length) == (NAME, 256)
    raw = httpx.get(f"{url}/api/v1/get_server_capabilities", headers={"X-API-Key": KEY}).json()
    assert raw["supported_models"][0]["max_lora_rank"] == 64
    assert httpx.get(f"{url}/api/v1/healthz").json() == {"status": "ok"}


def test_a_model_knows_what_it_is(client: tinker.ServiceClient) -> None:
    training = train(client)
    info = training.get_info()
    assert (info.is_lora, info.lora_rank, info.model_data.model_name) == (True, 4, NAME)
    rest = client.create_rest_client()
    assert rest.get_training_run(training.model_id).result(WAIT).base_model == NAME
    listed = rest.list_training_runs(limit=1000).result(WAIT)
    assert training.model_id in {each.training_run_id for each in listed.training_runs}


def test_cross_entropy_teaches_what_it_is_given(client: tinker.ServiceClient) -> None:
    training = train(client)
    torch.testing.assert_close(
        scores(training), reference_logprobs(tiny_model(), IDS), atol=1e-4, rtol=0
    )
    losses = []
    for _ in range(10):
        output = training.forward_backward([supervised()], "cross_entropy")
        step = training.optim_step(ADAM)
        losses.append(output.result(WAIT).metrics["loss:sum"])
        assert (step.result(WAIT).metrics or {})["grad_norm"] > 0.0
    assert losses[-1] < losses[0] - 5.0
    assert losses[0] == pytest.approx(-float(reference_logprobs(tiny_model(), IDS).sum()), abs=1e-3)


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_losses_of_rl_make_what_was_good_likelier(
    client: tinker.ServiceClient, loss: types.LossFnType, advantage: float
) -> None:
    training = train(client)
    before = float(scores(training).sum())
    for _ in range(3):
        training.forward_backward([drawn(advantage)], loss)
        training.optim_step(ADAM).result(WAIT)
    assert (float(scores(training).sum()) - before) * advantage > 0.1


def test_the_clip_holds_a_ratio_that_went_far_enough(client: tinker.ServiceClient) -> None:
    training = train(client)
    tight = {"clip_low_threshold": 0.999, "clip_high_threshold": 1.001}
    for _ in range(2):
        training.forward_backward([drawn(1.0)], "ppo", tight)
        training.optim_step(ADAM).result(WAIT)
    training.forward_backward([drawn(1.0)], "ppo", tight).result(WAIT)
    norm = (training.optim_step(ADAM).result(WAIT).metrics or {})["grad_norm"]
    free = train(client)
    free.forward_backward([drawn(1.0)], "importance_sampling").result(WAIT)
    assert norm < 0.5 * (free.optim_step(ADAM).result(WAIT).metrics or {})["grad_norm"]


def test_gradients_add_up_until_the_next_step_and_a_step_without_one_does_nothing(
    client: tinker.ServiceClient,
) -> None:
    at_once, in_parts = train(client), train(client)
    data = [supervised(random_ids(15, seed=seed)) for seed in range(4)]
    at_once.forward_backward(data, "cross_entropy").result(WAIT)
    for each in data:
        in_parts.forward_backward([each], "cross_entropy")
    norms = [each.optim_step(ADAM).result(WAIT).metrics for each in (at_once, in_parts)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    torch.testing.assert_close(scores(at_once), scores(in_parts), atol=1e-5, rtol=0)
    before = scores(at_once)
    assert at_once.optim_step(ADAM).result(WAIT).metrics == {"grad_norm": 0.0}
    torch.testing.assert_close(scores(at_once), before, atol=0, rtol=0)


def test_a_loss_of_the_clients_own_is_computed_from_log_probs(
    client: tinker.ServiceClient,
) -> None:
    training = train(client)
    before = float(scores(training).sum())

    def own(data: object, logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        return -logprobs[0].sum(), {"own": 1.0}

    output = training.forward_backward_custom([datum()], own).result(WAIT)
    training.optim_step(ADAM).result(WAIT)
    assert output.metrics["own"] == 1.0
    assert float(scores(training).sum()) > before


def test_two_hundred_data_come_back_in_order(client: tinker.ServiceClient) -> None:
    training = train(client)
    rows = [random_ids(5 + seed % 60, seed=seed) for seed in range(200)]
    output = training.forward([supervised(each) for each in rows], "cross_entropy").result(WAIT)
    for row, scored in list(zip(rows, output.loss_fn_outputs, strict=True))[::40]:
        torch.testing.assert_close(
            torch.tensor(scored["logprobs"].data),
            reference_logprobs(tiny_model(), row),
            atol=1e-4,
            rtol=0,
        )


def test_sampling_from_the_base_model_and_from_what_was_trained(
    client: tinker.ServiceClient,
) -> None:
    prompt = types.ModelInput.from_ints(IDS[:8])
    params = types.SamplingParams(max_tokens=12, seed=3, stop=[5])
    base = client.create_sampling_client(base_model=NAME)
    first = base.sample(prompt, num_samples=4, sampling_params=params).result(WAIT)
    assert len(first.sequences) == 4
    assert len({tuple(each.tokens) for each in first.sequences}) > 1
    for each in first.sequences:
        assert each.stop_reason == ("stop" if each.tokens[-1] == 5 else "length")
        expected = reference_logprobs(tiny_model(), IDS[:8] + each.tokens)[7:]
        torch.testing.assert_close(torch.tensor(each.logprobs), expected, atol=1e-4, rtol=0)
    training = train(client)
    for _ in range(20):
        training.forward_backward([supervised()], "cross_entropy")
        training.optim_step(ADAM).result(WAIT)
    path = training.save_weights_for_sampler("learned").result(WAIT).path
    assert path == f"tinker://{training.model_id}/sampler_weights/learned"
    greedy = types.SamplingParams(max_tokens=12, temperature=0.0)
    for sampler in (
        client.create_sampling_client(model_path=path),
        training.save_weights_and_get_sampling_client(),
    ):
        learned = sampler.sample(prompt, num_samples=1, sampling_params=greedy).result(WAIT)
        assert learned.sequences[0].tokens == IDS[8:20]
        assert sampler.compute_logprobs(prompt).result(WAIT)[1:] == pytest.approx(
            scores(training, IDS[:8]).tolist(), abs=1e-4
        )
    assert base.get_base_model() == NAME


def test_everything_that_was_kept_is_there_after_the_server_was_started_again(
    tmp_path: Path,
) -> None:
    write_model(tmp_path / "model")
    prompt, greedy = (
        types.ModelInput.from_ints(IDS[:8]),
        types.SamplingParams(max_tokens=6, temperature=0.0),
    )
    with tinker_server(tmp_path / "model", tmp_path / "state") as url:
        client = tinker.ServiceClient(api_key=KEY, base_url=url)
        training = train(client)
        training.forward_backward([supervised()], "cross_entropy")
        training.optim_step(ADAM).result(WAIT)
        state = training.save_state("kept").result(WAIT).path
        sampler = training.save_weights_and_get_sampling_client()
        before = sampler.sample(prompt, num_samples=1, sampling_params=greedy).result(WAIT)
        scored = scores(training)
    with tinker_server(tmp_path / "model", tmp_path / "state", port=port_of(url)):
        # A sampling session goes on; a model in training has to be made again.
        after = sampler.sample(prompt, num_samples=1, sampling_params=greedy).result(WAIT)
        assert after.sequences[0].tokens == before.sequences[0].tokens
        with pytest.raises(tinker.NotFoundError, match="is not in memory"):
            training.forward([supervised()], "cross_entropy").result(WAIT)
        again = tinker.ServiceClient(api_key=KEY, base_url=url)
        resumed = again.create_training_client_from_state_with_optimizer(state)
        torch.testing.assert_close(scores(resumed), scored, atol=1e-6, rtol=0)


def test_an_archive_is_the_adapter_and_needs_no_key_for_a_while(
    client: tinker.ServiceClient,
) -> None:
    training = train(client)
    path = training.save_state("archived").result(WAIT).path
    rest = client.create_rest_client()
    link = rest.get_checkpoint_archive_url_from_tinker_path(path).result(WAIT)
    with tarfile.open(fileobj=BytesIO(httpx.get(link.url).content)) as tar:
        assert set(tar.getnames()) == {
            "adapter_config.json",
            "adapter_model.safetensors",
            "checkpoint_complete",
        }
    assert httpx.get(f"{link.url}x").status_code == 404
    kept = rest.list_checkpoints(training.model_id).result(WAIT).checkpoints
    assert [(each.checkpoint_id, each.checkpoint_type) for each in kept] == [
        ("weights/archived", "training")
    ]
    rest.delete_checkpoint_from_tinker_path(path).result(WAIT)
    assert rest.list_checkpoints(training.model_id).result(WAIT).checkpoints == []


REFUSED: list[tuple[types.Datum, types.LossFnType, dict[str, float] | None, str]] = [
    (supervised(), "dro", None, "loss_fn"),
    (supervised(), "ppo", None, "takes"),
    (datum(weights=[1.0] * 3), "cross_entropy", None, "one number for each of the datum's 19"),
    (supervised([1, 2, 64]), "cross_entropy", None, "none of the 64"),
    (supervised(random_ids(300, seed=1)), "cross_entropy", None, "the context is 256"),
    (supervised(), "cross_entropy", {"clip_low_threshold": 0.5}, "no setting clip_low_threshold"),
    (drawn(1.0), "ppo", {"beta": 0.5}, "no setting beta"),
    (drawn(1.0), "ppo", {"clip_low_threshold": 1.5}, "must be smaller than"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[3])
def test_data_that_a_loss_cannot_take_are_refused_with_a_sentence(
    client: tinker.ServiceClient,
    case: tuple[types.Datum, types.LossFnType, dict[str, float] | None, str],
) -> None:
    given, loss, config, said = case
    training = train(client)
    with pytest.raises((tinker.TinkerError, ValueError), match=said):
        training.forward_backward([given], loss, config).result(WAIT)
    before = scores(training)
    training.optim_step(ADAM).result(WAIT)
    torch.testing.assert_close(scores(training), before, atol=0, rtol=0)


def test_what_the_server_does_not_do_it_says(client: tinker.ServiceClient) -> None:
    prompt = types.ModelInput.from_ints(IDS[:8])
    base = client.create_sampling_client(base_model=NAME)
    for params, said in (
        (types.SamplingParams(max_tokens=2, stop=["end"]), "not at texts"),
        (types.SamplingParams(max_tokens=2, top_k=3), "leave top_k out"),
    ):
        with pytest.raises(tinker.TinkerError, match=said):
            base.sample(prompt, num_samples=1, sampling_params=params).result(WAIT)
    with pytest.raises(tinker.TinkerError, match="no model 'other'"):
        client.create_lora_training_client(base_model="other", rank=4)
    training = train(client)
    training.save_state("once").result(WAIT)
    with pytest.raises(tinker.TinkerError, match="weights/once exists already"):
        training.save_state("once").result(WAIT)
    assert training.save_state("once", overwrite=True).result(WAIT).path.endswith("/once")
    with pytest.raises(tinker.TinkerError, match="letters, digits"):
        training.load_state("tinker://../weights/x").result(WAIT)


def test_a_wrong_key_is_refused(url: str) -> None:
    client = tinker.ServiceClient(api_key="tml-other", base_url=url)
    with pytest.raises(tinker.AuthenticationError, match="401"):
        client.get_server_capabilities()


def test_a_request_that_is_repeated_is_done_once(url: str) -> None:
    http = httpx.Client(base_url=f"{url}/api/v1", headers={"X-API-Key": KEY})
    session = http.post("/create_session", json={"sdk_version": "0", "tags": []}).json()[
        "session_id"
    ]
    lora = {"rank": 4}
    asked = {"session_id": session, "model_seq_id": 0, "base_model": NAME, "lora_config": lora}
    jobs = [http.post("/create_model", json=asked).json()["request_id"] for _ in range(2)]
    assert jobs[0] == jobs[1]
    made = http.post("/retrieve_future", json={"request_id": jobs[0]}).json()
    assert made == {"model_id": f"{session}:train:0", "type": "create_model"}
    gone = http.post("/retrieve_future", json={"request_id": "req-0"})
    assert gone.status_code == 410
    http.close()


def test_a_client_that_falls_silent_loses_models_and_jobs_and_one_that_does_not_keeps_them(
    tmp_path: Path,
) -> None:
    now = [0.0]
    settings = {"max_models": 1, "session_timeout_s": 300.0}
    with tinker_server(
        write_model(tmp_path / "model"), tmp_path / "state", clock=lambda: now[0], **settings
    ) as url:
        http = httpx.Client(base_url=f"{url}/api/v1", headers={"X-API-Key": KEY})

        def begin() -> str:
            asked = {"sdk_version": "0", "tags": []}
            session: str = http.post("/create_session", json=asked).json()["session_id"]
            return session

        def make(session: str, number: int = 0) -> dict[str, str]:
            asked = {
                "session_id": session,
                "model_seq_id": number,
                "base_model": NAME,
                "lora_config": {"rank": 4},
            }
            job = http.post("/create_model", json=asked).json()["request_id"]
            result: dict[str, str] = http.post("/retrieve_future", json={"request_id": job}).json()
            return result

        silent = begin()
        assert make(silent)["type"] == "create_model"
        sampler = {"session_id": silent, "sampling_session_seq_id": 0, "base_model": NAME}
        sampler_id = http.post("/create_sampling_session", json=sampler).json()
        drawn = {
            "sampling_session_id": sampler_id["sampling_session_id"],
            "seq_id": 0,
            "num_samples": 1024,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": IDS}]},
            "sampling_params": {"max_tokens": 200},
        }
        drawing = http.post("/asample", json=drawn).json()["request_id"]
        now[0] = 200.0
        other = begin()
        now[0] = 301.0
        assert http.post("/session_heartbeat", json={"session_id": other}).status_code == 200
        ended = http.post("/retrieve_future", json={"request_id": drawing}).json()
        assert ended["category"] == "server"
        assert "its client was silent for longer than 300 s" in ended["error"]
        assert make(other)["type"] == "create_model"
        assert http.post("/session_heartbeat", json={"session_id": silent}).status_code == 404
        http.close()


def test_telemetry_is_taken_and_dropped(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "1")
    client = tinker.ServiceClient(api_key=KEY, base_url=url)
    train(client)
    telemetry = client.get_telemetry()
    assert telemetry is not None
    telemetry.log("said", event_data={"by": "a test"})
    telemetry._trigger_flush()
    deadline = time.monotonic() + 10.0
    while telemetry._flush_counter < telemetry._push_counter:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    telemetry.stop()
