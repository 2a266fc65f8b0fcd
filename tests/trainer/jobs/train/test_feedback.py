"""What the sampler concludes from a step is written into the journal."""

from __future__ import annotations

from pathlib import Path

from hillclimb.protocol.events import EVENTS, CurriculumReweighted, Event, RunWarning
from hillclimb.spec.data import CurriculumSpec
from tests.trainer.fixtures.groups import a_group
from tests.trainer.fixtures.scripted import a_task
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.inputs.tasks.sampler import UNSAMPLED_AFTER, TaskSampler
from trainer.inputs.tasks.sampling import PromptSampling
from trainer.jobs.train.feedback import feed_back

TASKS = [
    *[a_task(f"a{index}", "a") for index in range(200)],
    *[a_task(f"b{index}", "b") for index in range(200)],
    a_task("c0", "c"),
]


def events(path: Path) -> list[Event]:
    return [EVENTS.validate_json(line) for line in path.read_bytes().splitlines()]


def test_an_environment_never_sampled_is_warned_of_once(tmp_path: Path) -> None:
    journal = EventJournal(JsonlFile(tmp_path / "events.jsonl"))
    sampler = TaskSampler(TASKS, 2, 0, PromptSampling(mode="proportional"))
    for step in range(1, UNSAMPLED_AFTER + 3):
        sampler.next_step()
        metrics = feed_back(sampler, journal, step, [])
    assert metrics["data/c/coverage"] == 0.0
    journal.close(drain_s=0.0)
    (warning,) = events(tmp_path / "events.jsonl")
    assert isinstance(warning, RunWarning)
    assert (warning.step, warning.code) == (UNSAMPLED_AFTER, "environment_never_sampled")
    assert warning.message.startswith("no task of c has been drawn in")
    assert "set data.sampling to hybrid" in warning.message


def test_a_change_of_shares_is_an_event(tmp_path: Path) -> None:
    journal = EventJournal(JsonlFile(tmp_path / "events.jsonl"))
    curriculum = CurriculumSpec(interval=2)
    sampler = TaskSampler(TASKS, 6, 0, PromptSampling(mode="hybrid", curriculum=curriculum))
    for step in range(1, 4):
        groups = [a_group("a", f"a{step}", [0.0, 1.0]), a_group("b", f"b{step}", [1.0, 1.0])]
        metrics = feed_back(sampler, journal, step, groups)
    journal.close(drain_s=0.0)
    (event,) = events(tmp_path / "events.jsonl")
    assert isinstance(event, CurriculumReweighted)
    assert event.step == 2
    assert min(event.old_shares["a"], event.old_shares["b"]) > 0.49
    assert event.new_shares["a"] > 0.6 > 0.4 > event.new_shares["b"]
    assert event.signals == {"a": 1.0, "b": 0.0, "c": None}
    assert metrics["curriculum/a/share"] == event.new_shares["a"]
