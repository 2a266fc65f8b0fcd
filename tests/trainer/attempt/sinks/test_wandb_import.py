"""A file that W&B wrote for a run of ours is read by the importer as W&B's own package reads it."""

from __future__ import annotations

from pathlib import Path

from hillclimb.blobs.disk import DiskStore
from hillclimb.client.imports.wandb_file import read_offline_run
from tests.fixtures.factories import ended, evaluated, started, step
from tests.trainer.attempt.sinks.test_tracking import WAIT_S, a_plan
from tests.trainer.attempt.sinks.wandb_file import BLOCK, read_wandb
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.tracker_choice import add_trackers

NUM_STEPS = 30


def test_the_importer_reads_what_wandbs_own_messages_hold(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, name="climb")
    journal = EventJournal(JsonlFile(plan.attempt_dir.events))
    add_trackers(journal, plan, DiskStore(tmp_path / "blobs"), {})
    journal.emit(started(1, engine="torch"))
    journal.emit(evaluated(2, 0))
    for number in range(1, NUM_STEPS + 1):
        metrics = {f"reward/metric_{index}": number / (index + 1) for index in range(60)}
        journal.emit(step(2 + number, number, metrics=metrics))
    journal.emit(ended(3 + NUM_STEPS))
    assert journal.close(drain_s=WAIT_S)
    (path,) = plan.attempt_dir.path.glob("wandb/offline-run-*/*.wandb")
    assert path.stat().st_size > 2 * BLOCK  # records that continue in another block
    run, own = read_offline_run(path), read_wandb(plan.attempt_dir.path)
    assert (run.run_id, run.name) == (own.run.run_id, own.run.display_name)
    assert not run.is_cut_off
    assert [row["_step"] for row in run.rows] == list(range(NUM_STEPS + 1))
    for ours, theirs in zip(run.rows, own.history, strict=True):
        numbers = {k: v for k, v in theirs.items() if isinstance(v, int | float)}
        assert {name: ours[name] for name in numbers} == numbers
