"""What a checkpoint holds, what comes back from it, and what a server may not do in silence."""

from __future__ import annotations

import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from hillclimb.blobs.base import StoreError
from hillclimb.protocol.rundir import checkpoint_name
from tests.trainer.fixtures.tiny import random_ids, reference_logprobs, tiny_model
from tests.trainer.learners.recorded import batch
from tests.trainer.workers.tinker.server.local import (
    NAME,
    RANK,
    make_learner,
    open_service,
    port_of,
    tinker_server,
    write_model,
)
from trainer.algo.sequences import Batch
from trainer.errors import CheckpointError, LearnerError, SpecError
from trainer.workers.tinker.saved import read_state
from trainer.workers.tinker.service import TinkerService

IDS = random_ids(40, seed=3)


@pytest.mark.invariant("a Tinker server that restarted goes on from the checkpoint")
async def test_training_goes_on_from_a_checkpoint_after_the_server_was_started_again(
    tmp_path: Path,
) -> None:
    write_model(tmp_path / "model")
    saved = tmp_path / "saved"
    with tinker_server(tmp_path / "model", tmp_path / "state") as url:
        service = open_service(url, call_timeout_s=5.0)
        learner = make_learner(service)
        for _ in range(3):
            await learner.step(batch())
        learner.begin_save(saved)()
        scores = await learner.logprobs(IDS)
        await learner.step(batch())
        after = await learner.logprobs(IDS)
    with pytest.raises(LearnerError, match=r"no answer to log-probs of a sequence in 5 s"):
        await learner.logprobs(IDS)
    with tinker_server(tmp_path / "model", tmp_path / "state", port=port_of(url)) as again:
        assert again == url
        other = open_service(url, name="run_a-a2")
        resumed = make_learner(other)
        resumed.load(saved)
        assert (resumed.version, resumed.num_updates) == (3, 3)
        torch.testing.assert_close(await resumed.logprobs(IDS), scores, atol=1e-6, rtol=0)
        # The optimizer came along: the next step is the one that the first server took.
        await resumed.step(batch())
        torch.testing.assert_close(await resumed.logprobs(IDS), after, atol=1e-5, rtol=0)
        other.close()
        service.close()


async def test_a_checkpoint_has_the_adapter_itself_for_when_the_server_forgets(
    service: TinkerService, tmp_path: Path
) -> None:
    learner = make_learner(service)
    await learner.step(batch())
    scores = await learner.logprobs(IDS)
    learner.begin_save(tmp_path)()
    assert {path.name for path in (tmp_path / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    model = PeftModel.from_pretrained(tiny_model(), str(tmp_path / "adapter"))
    torch.testing.assert_close(reference_logprobs(model, IDS), scores, atol=1e-4, rtol=0)
    state = read_state(tmp_path)
    assert (state.base_model, state.lora_rank, state.version) == (NAME, RANK, 1)
    assert state.state_path.startswith("tinker://")


async def test_what_is_saved_is_the_state_at_the_call_whatever_is_learned_meanwhile(
    service: TinkerService, tmp_path: Path
) -> None:
    learner = make_learner(service)
    await learner.step(batch())
    scores = await learner.logprobs(IDS)
    finish = learner.begin_save(tmp_path)
    await learner.step(batch())
    finish()
    learner.load(tmp_path)
    torch.testing.assert_close(await learner.logprobs(IDS), scores, atol=1e-6, rtol=0)
    assert learner.version == 1


async def test_a_step_can_be_saved_twice_and_states_go_with_their_checkpoints(
    service: TinkerService, tmp_path: Path
) -> None:
    learner = make_learner(service)
    places = [tmp_path / name for name in ("0", "0 again", "1", "2")]
    for place in places:
        learner.begin_save(place)()
        if place.name != "0":
            await learner.step(batch())
    assert len({read_state(place).state_path for place in places}) == 4
    # Of step 1 another attempt has a checkpoint, not this one.
    learner.keep_only([checkpoint_name(0, 1), checkpoint_name(1, 2), checkpoint_name(2, 1)])
    with pytest.raises(CheckpointError, match="no longer has what the checkpoint names"):
        learner.load(tmp_path / "1")
    for name in ("0", "0 again", "2"):
        learner.load(tmp_path / name)


async def test_an_attempt_deletes_what_the_one_before_it_left_and_nothing_of_other_runs(
    service: TinkerService, url: str, tmp_path: Path
) -> None:
    first = make_learner(service)
    for number in range(2):
        first.begin_save(tmp_path / f"1-{number}")()
        await first.step(batch())
    rest = service.client.create_rest_client()

    def kept_of_first() -> list[str]:
        listed = rest.list_checkpoints(first._training.model_id).result(60.0).checkpoints
        return [each.checkpoint_id.rpartition("step")[2] for each in listed]

    # The copies that adapters are downloaded from are gone as soon as they were.
    assert kept_of_first() == ["000000-1", "000001-2"]
    other = open_service(url, name="run_b-a1")
    branched = make_learner(other)
    branched.load(tmp_path / "1-1")
    branched.begin_save(tmp_path / "b")()
    branched.keep_only([checkpoint_name(1, 1)])
    branched.keep_only([])
    assert kept_of_first() == ["000000-1", "000001-2"]
    other.close()
    again = open_service(url, name="run_a-a2")
    second = make_learner(again)
    second.load(tmp_path / "1-1")
    second.begin_save(tmp_path / "2")()
    second.keep_only([checkpoint_name(1, 1), checkpoint_name(1, 2)])
    assert kept_of_first() == ["000001-2"]
    second.keep_only([checkpoint_name(1, 2)])
    assert kept_of_first() == []
    second.load(tmp_path / "2")
    again.close()


async def test_a_step_without_a_contrast_asks_the_server_for_nothing(
    service: TinkerService,
) -> None:
    learner = make_learner(service)
    await learner.step(batch())
    before = await learner.logprobs(IDS)
    metrics = await learner.step(Batch(mini_batches=()))
    assert (learner.version, learner.num_updates) == (2, 1)
    assert metrics["policy/num_updates"] == 0.0
    torch.testing.assert_close(await learner.logprobs(IDS), before, atol=0, rtol=0)


async def test_mini_batches_of_a_step_are_each_an_update_from_the_one_before(
    service: TinkerService,
) -> None:
    part = batch().mini_batches[0]
    at_once, in_turn = make_learner(service), make_learner(service)
    metrics = await at_once.step(Batch(mini_batches=(part[:3], part[3:])))
    for each in (part[:3], part[3:]):
        await in_turn.step(Batch(mini_batches=(each,)))
    assert metrics["policy/num_updates"] == 2.0
    torch.testing.assert_close(
        await at_once.logprobs(IDS), await in_turn.logprobs(IDS), atol=1e-5, rtol=0
    )


def test_a_checkpoint_of_another_backend_or_rank_is_refused(
    service: TinkerService, url: str, tmp_path: Path
) -> None:
    learner = make_learner(service)
    (tmp_path / "learner").mkdir()
    with pytest.raises(CheckpointError, match="not saved by the backend tinker"):
        learner.load(tmp_path)
    learner.begin_save(tmp_path)()
    other = open_service(url, lora_rank=4)
    with pytest.raises(CheckpointError, match="with rank 8, and the run of local/tiny with rank 4"):
        make_learner(other).load(tmp_path)
    other.close()
    path = tmp_path / "learner" / "tinker.json"
    path.write_text(json.dumps({"state_path": "elsewhere"}))
    with pytest.raises(CheckpointError, match=r"tinker\.json of the checkpoint cannot be read"):
        learner.load(tmp_path)


def test_a_model_rank_or_context_that_the_server_has_not_is_refused_with_what_it_has(
    url: str,
) -> None:
    with pytest.raises(SpecError, match=r"no model 'Qwen/Qwen3-8B', but local/tiny"):
        open_service(url, base_model="Qwen/Qwen3-8B")
    service = open_service(url, lora_rank=512)
    with pytest.raises(SpecError, match="ranks up to 64, not 512"):
        make_learner(service)


def test_a_full_server_has_until_the_deadline_for_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A server that refuses at once, as SkyRL does.
    monkeypatch.setattr("trainer.tinker_server.service.PLACE_WAIT_S", 0.0)
    write_model(tmp_path / "model")
    with tinker_server(tmp_path / "model", tmp_path / "state", max_models=1) as url:
        first = open_service(url)
        make_learner(first)
        hasty = open_service(url, call_timeout_s=60.0)
        monkeypatch.setattr("trainer.workers.tinker.service.PLACE_POLL_S", 61.0)
        with pytest.raises(LearnerError, match="maximum number of LoRA adapters"):
            make_learner(hasty)
        hasty.close()
        monkeypatch.setattr("trainer.workers.tinker.service.PLACE_POLL_S", 0.05)
        second = open_service(url)
        with ThreadPoolExecutor() as pool:
            making = pool.submit(make_learner, second)
            deadline = time.monotonic() + 60.0
            while "waiting up to 300 s for a place" not in caplog.text:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert not making.done()
            # Who leaves gives the place back at once.
            first.close()
            making.result(60.0)
        second.close()


def test_an_adapter_that_cannot_be_copied_leaves_the_checkpoint_for_later(
    service: TinkerService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(service)
    monkeypatch.setattr("trainer.workers.tinker.saved.ADAPTER_FILES", ("adapter_model.bin",))
    with pytest.raises(StoreError, match="adapter could not be copied"):
        learner.begin_save(tmp_path)()
    monkeypatch.undo()
    # Of a checkpoint that nobody can name the server keeps nothing.
    rest = service.client.create_rest_client()
    listed = rest.list_checkpoints(learner._training.model_id).result(60.0).checkpoints
    assert listed == []
    learner.begin_save(tmp_path)()


async def test_the_values_of_tokens_are_the_servers_log_probs_without_entropies(
    tmp_path: Path,
) -> None:
    write_model(tmp_path / "model")
    given = batch()
    (part,) = given.mini_batches
    halves = Batch(mini_batches=(part[:3], part[3:]))
    with tinker_server(tmp_path / "model", tmp_path / "state") as url:
        service = open_service(url)
        learner = make_learner(service, keeps_token_values=True)
        await learner.step(halves)
        values = await learner.take_token_values()
        assert await learner.take_token_values() == ()
        service.close()
    assert [each.num_updates for each in values] == [0] * 3 + [1] * 4
    assert {each.entropies for each in values} == {None}
    for sequence, each in zip(part, values, strict=True):
        gaps = struct.unpack(f"<{sequence.num_actions}e", each.gaps)
        # Sampled by the weights that the first mini-batch was scored with, at temperature 1.
        assert (max(map(abs, gaps)) < 1e-3) == (each.num_updates == 0)
