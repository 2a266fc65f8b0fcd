"""Whole warm starts: a tiny random model, real checkpoints and events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hillclimb.process.identity import HOME_VARIABLE
from hillclimb.protocol.events import CheckpointSaved, RunWarning, StepCompleted, TrainerStarted
from hillclimb.protocol.rundir import POLICY, checkpoint_name, run_key
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun, saying_done_is_right
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.attempt.stop_signal import StopRequested
from trainer.errors import DataError, SpecError
from trainer.inputs.tasks.sets import load_tasks
from trainer.jobs.sft.imitator import Imitator
from trainer.jobs.sft.sequences import Sequences
from trainer.jobs.sft.wiring import build_imitator
from trainer.jobs.train.starting_policy import fetch_model


def demonstrations(folder: Path, number: int = 20) -> Path:
    """Conversations that say `<done>` to anything."""
    file = folder / "demonstrations.jsonl"
    answer = {"role": "assistant", "content": "<done>"}
    rows = [
        {"env_key": "github", "messages": [{"role": "user", "content": f"Task {n}"}, answer]}
        for n in range(number)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


class WarmStart(ShortRun):
    """A short run that imitates."""

    def __init__(self, root: Path, run_id: str | None = None, **sft: Any) -> None:
        super().__init__(root, run_id)
        shown = sft or {"demonstrations": str(demonstrations(root))}
        body = self.spec.model_dump(mode="json") | {"kind": "sft", "sft": shown}
        self.spec = type(self.spec).model_validate(body)

    def imitator(self, attempt: int = 1, *, resume_from: str | None = None) -> Imitator:
        context = self.begin(attempt, resume_from=resume_from)
        try:
            return build_imitator(context, saying_done_is_right())
        except BaseException:
            self.journal.abandon()
            raise

    def losses(self, attempt: int = 1) -> dict[int, float]:
        return {e.step: e.metrics["sft/loss"] for e in self.events(StepCompleted, attempt)}

    def checkpoint(self, step: int, attempt: int = 1) -> str:
        return run_key(self.run_id, checkpoint_name(step, attempt))


async def test_it_learns_reports_and_ends_in_a_checkpoint_that_a_run_starts_from(
    tmp_path: Path,
) -> None:
    run = WarmStart(tmp_path, "run_0123456789warm")
    await run.finish(run.imitator())
    losses = run.losses()
    assert list(losses) == [1, 2, 3, 4]
    assert losses[4] < losses[1]
    (started,) = run.events(TrainerStarted)
    assert (started.total_steps, started.num_train_tasks, started.num_eval_tasks) == (4, 18, 2)
    held_out = [e.metrics.get("sft/held_out_loss") for e in run.events(StepCompleted)]
    assert [each is not None for each in held_out] == [True, True, False, True]
    assert [(e.step, e.final) for e in run.events(CheckpointSaved)] == [(2, False), (4, True)]
    source = f"run:{run.run_id}@4/attempt-1"
    later = ShortRun(tmp_path, "run_later", model={"source": source})
    directory = fetch_model(later.begin())
    later.journal.abandon()
    assert directory.name == POLICY
    assert (directory / "config.json").is_file()


async def test_a_resumed_warm_start_goes_on_bit_by_bit(tmp_path: Path) -> None:
    whole = WarmStart(tmp_path, "run_0123456789whole")
    await whole.finish(whole.imitator())
    resumed = WarmStart(tmp_path, "run_0123456789parts")
    work = resumed.imitator()
    await work._take_step()
    resumed.stop.request_stop()
    with pytest.raises(StopRequested):
        await resumed.finish(work)
    await resumed.finish(resumed.imitator(2, resume_from=resumed.checkpoint(1)))
    assert resumed.losses(1) | resumed.losses(2) == whole.losses()


async def test_rollouts_of_an_earlier_run_are_imitated_by_their_tokens(tmp_path: Path) -> None:
    earlier = ShortRun(tmp_path, "run_0123456789early", eval=UNEVALUATED)
    await earlier.train()
    run = WarmStart(tmp_path, "run_0123456789later", rollouts_of=earlier.run_id, min_score=0.0)
    await run.finish(run.imitator())
    (started,) = run.events(TrainerStarted)
    # 4 steps of 4 groups of 4: those without a grade, and repetitions, are left out.
    assert 0 < started.num_train_tasks + started.num_eval_tasks <= 64
    assert len(run.losses()) == 4


def add_demonstration(run: WarmStart, env_key: str, prompt: str) -> None:
    answer = {"role": "assistant", "content": "<done>"}
    row = {"env_key": env_key, "messages": [{"role": "user", "content": prompt}, answer]}
    file = Path(str(run.spec.sft.demonstrations))
    file.write_text(file.read_text() + json.dumps(row) + "\n")


async def test_demonstrations_of_eval_tasks_are_left_out(tmp_path: Path) -> None:
    run = WarmStart(tmp_path, "run_0123456789leak")
    (task, *_) = load_tasks(run.spec, run.store).eval
    add_demonstration(run, task.env_key, task.prompt)
    await run.finish(run.imitator())
    assert [e.code for e in run.events(RunWarning)] == ["demonstrations_of_eval"]


async def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    run = WarmStart(tmp_path, demonstrations=str(tmp_path / "nothing.jsonl"))
    with pytest.raises(DataError, match=r"nothing\.jsonl: No such file"):
        run.imitator()


async def test_files_of_other_runs_are_neither_a_model_nor_demonstrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a runner, whose folder has every run of the machine."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "state" / "runner"))
    (tmp_path / "state").mkdir()
    run = WarmStart(tmp_path / "state")
    with pytest.raises(SpecError, match=r"model\.source is .* files of other runs"):
        run.imitator()
    elsewhere = write_tiny_model(tmp_path / "model", positions=1600)
    model = run.spec.model.model_copy(update={"source": str(elsewhere)})
    run.spec = run.spec.model_copy(update={"model": model})
    with pytest.raises(SpecError, match=r"sft\.demonstrations is .* files of other runs"):
        run.imitator(2)


def test_an_epoch_has_every_conversation_once() -> None:
    found = tuple(range(10))
    sequences = Sequences(train=found, held_out=(), num_too_long=0)  # type: ignore[arg-type]
    drawn = [each for step in range(1, 6) for each in sequences.batch(step, 4, seed=3)]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == list(found)  # type: ignore[type-var]
    assert drawn[:10] != drawn[10:]
