"""Whole runs through the wiring with the backend tinker: same loop, events and checkpoints."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.environment.errors import SampleUnusable
from hillclimb.protocol.events import CheckpointSaved, EvalCompleted, StepCompleted, TrainerStarted
from tests.trainer.fixtures.short_run import LIKELY, UNEVALUATED, ShortRun
from tests.trainer.fixtures.tiny_model import write_tiny_model
from tests.trainer.workers.tinker.server.local import KEY, NAME, port_of, tinker_server
from trainer.errors import CheckpointError, SpecError, TrainerError

POSITIONS = 1600


def model(root: Path) -> Path:
    return write_tiny_model(root / "served", positions=POSITIONS, likely=LIKELY)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("served")
    with tinker_server(model(root), root / "state", max_models=8) as url:
        yield url


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)


def a_run(root: Path, url: str, **sections: Any) -> ShortRun:
    tinker = {"base_url": url, "base_model": NAME, "lora_rank": 8, "call_timeout_s": 120.0}
    given: dict[str, Any] = {
        "backend": {"type": "tinker", "tinker": tinker | sections.pop("tinker", {})},
        "engine": {"type": "auto"},
        "optimizer": {"lr": 0.05, "max_grad_norm": None},
        "eval": {"interval": 0, "decodings": [{"name": "sampled"}]},
    }
    return ShortRun(root, positions=POSITIONS, **given | sections)


@pytest.mark.invariant("a whole run on a Tinker server learns, evaluates and saves")
def test_a_run_on_a_server_learns_evaluates_and_saves_like_any_other(
    tmp_path: Path, served: str
) -> None:
    run = a_run(
        tmp_path,
        served,
        rollout={"n_samples_per_prompt": 8},
        schedule={"total_steps": 6},
        checkpoints={"interval": 3},
    )
    asyncio.run(run.train())
    (started,) = run.events(TrainerStarted)
    assert (started.engine, started.num_parameters > 0) == ("tinker", True)
    steps = run.events(StepCompleted)
    assert [each.step for each in steps] == list(range(1, 7))
    rates = [each.metrics["reward/avg_raw_reward"] for each in steps]
    assert statistics.mean(rates[-3:]) > statistics.mean(rates[:2]) + 0.1
    evals = [each.metrics["eval/all/pass_at_1"] for each in run.events(EvalCompleted)]
    assert evals[-1] > evals[0]
    assert max(each.metrics["policy/canary_logprobs_abs_diff_mean"] for each in steps) < 1e-4
    assert all(
        each.metrics["policy/rollout_train_logprobs_abs_diff_max"] < 1e-4
        for each in steps
        if each.metrics["policy/num_sequences"]
    )
    saved = run.events(CheckpointSaved)
    assert [(each.step, each.final) for each in saved] == [(3, False), (6, True)]
    files = {
        path.relative_to(tmp_path / "blobs" / "runs" / run.run_id / saved[0].path).as_posix()
        for path in (tmp_path / "blobs" / "runs" / run.run_id / saved[0].path).rglob("*")
        if path.is_file()
    }
    assert files == {
        "manifest.json",
        "learner/tinker.json",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    }


@pytest.mark.long
def test_an_attempt_goes_on_from_the_manifest_after_the_server_was_started_again(
    tmp_path: Path,
) -> None:
    root = tmp_path / "server"
    with tinker_server(model(root), root / "state") as url:
        run = a_run(tmp_path / "run", url)
        asyncio.run(run.train())
    first = [each.metrics for each in run.events(StepCompleted)]
    with tinker_server(root / "served", root / "state", port=port_of(url)):
        key = f"runs/{run.run_id}/checkpoints/global_step_2/attempt-1"
        asyncio.run(run.train(2, resume_from=key))
    (started,) = run.events(TrainerStarted, attempt=2)
    assert started.resumed_from_step == 2
    again = run.events(StepCompleted, attempt=2)
    assert [each.step for each in again] == [3, 4]
    # The first step after the checkpoint rolls out with the same weights, seeds and tasks.
    assert again[0].metrics["reward/avg_raw_reward"] == pytest.approx(
        first[2]["reward/avg_raw_reward"]
    )
    assert again[0].metrics["policy/policy_lr"] == first[2]["policy/policy_lr"]
    assert [each.step for each in run.events(CheckpointSaved, attempt=2)] == [4]


@pytest.mark.long
def test_rollouts_may_go_on_while_the_server_learns(tmp_path: Path, served: str) -> None:
    run = a_run(tmp_path, served, schedule={"max_staleness_steps": 1})
    asyncio.run(run.train())
    ages = [each.metrics["async/staleness_max"] for each in run.events(StepCompleted)]
    assert max(ages) >= 1.0


@pytest.mark.long
def test_an_evaluation_can_be_of_a_checkpoint_that_the_server_keeps(
    tmp_path: Path, served: str
) -> None:
    trained = a_run(tmp_path / "trained", served)
    asyncio.run(trained.train())
    last = trained.events(EvalCompleted)[-1]
    key = f"runs/{trained.run_id}/checkpoints/global_step_4/attempt-1"
    lineage = {"resumed_from": {"run_id": "run_0123456789", "step": 4, "attempt": 1}}
    evaluated = a_run(tmp_path / "evaluated", served, lineage=lineage)
    evaluated.spec = evaluated.spec.model_copy(update={"kind": "eval"})
    evaluated.store = trained.store
    asyncio.run(evaluated.train(resume_from=key))
    again = evaluated.events(EvalCompleted)[-1]
    assert again.metrics["eval/all/pass_at_1"] == last.metrics["eval/all/pass_at_1"]


class TakesOneCheckpoint(DiskStore):
    """A store that goes away once a checkpoint is whole."""

    def put_file(self, key: str, path: Path) -> None:
        if "/global_step_1/" not in key and "/checkpoints/" in key:
            raise StoreError("away")
        super().put_file(key, path)


@pytest.mark.long
def test_the_server_keeps_the_state_of_the_newest_checkpoint_however_long_the_store_is_away(
    tmp_path: Path, served: str
) -> None:
    run = a_run(
        tmp_path,
        served,
        schedule={"total_steps": 5},
        eval={"before_training": False, "decodings": [{"name": "sampled"}]},
        checkpoints={"interval": 1, "keep_last": 1},
    )
    store, run.store = run.store, TakesOneCheckpoint(tmp_path / "blobs")
    with pytest.raises(TrainerError, match="the last checkpoint is not stored"):
        asyncio.run(run.train())
    assert [each.step for each in run.events(CheckpointSaved)] == [1]
    run.store = store
    key = f"runs/{run.run_id}/checkpoints/global_step_1/attempt-1"
    asyncio.run(run.train(2, resume_from=key))
    assert [each.step for each in run.events(StepCompleted, attempt=2)] == [2, 3, 4, 5]


async def test_a_checkpoint_of_our_own_learner_is_refused(tmp_path: Path, served: str) -> None:
    ours = ShortRun(
        tmp_path / "ours", positions=POSITIONS, schedule={"total_steps": 2}, eval=UNEVALUATED
    )
    await ours.train()
    run = a_run(tmp_path / "theirs", served)
    run.store = ours.store
    key = f"runs/{ours.run_id}/checkpoints/global_step_2/attempt-1"
    with pytest.raises(CheckpointError, match="not saved by the backend tinker"):
        run.build(resume_from=key)


async def test_a_context_that_the_server_has_not_is_refused_where_the_trainer_starts(
    tmp_path: Path,
) -> None:
    root = tmp_path / "server"
    said = r"rollout\.max_sequence_length \(1600\) is larger"
    with (
        tinker_server(model(root), root / "state", max_context=512) as url,
        pytest.raises(SpecError, match=said),
    ):
        a_run(tmp_path / "run", url).build()


async def test_rollouts_without_log_probs_are_rolled_again_and_never_learned_from(
    tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(
        tmp_path, served, schedule={"total_steps": 1}, environment={"max_infra_error_rate": 1.0},
        eval={"before_training": False, "decodings": [{"name": "sampled"}]},
    )  # fmt: skip

    def unusable(*given: object) -> None:
        raise SampleUnusable("no log-probs")

    monkeypatch.setattr("trainer.workers.tinker.engine._usable", unusable)
    await run.train()
    (step,) = run.events(StepCompleted)
    assert step.metrics["policy/num_sequences"] == 0.0
    assert {(row.status, row.reason) for row in step.outcomes} == {
        ("infra_error", "sample_unusable")
    }
