"""`hillclimb validate`: show what was found, and hand the failures to the dataset."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import select

from api.datasets import validation_exclusions
from api.datasets.validation_exclusions import exclude_what_failed, waiting_runs
from api.notices.deliver import Delivery
from api.results.preflight.newest_event import newest_event
from api.results.preflight.validation import TYPE
from api.runs.journal import Draft, append
from api.runs.store import lock_run
from api.tables import Run
from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import attempt_name, run_key
from hillclimb.protocol.validation import VALIDATION_ROWS, TaskValidation, summarise_tasks
from tests.api.datasets.samples import PLAYED, lines, tasks
from tests.api.fixtures.story import Story
from tests.api.results.preflight.test_validation import a_validation, rows, store_rows
from tests.hillclimb.cli.conftest import Invoke, from_json
from tests.hillclimb.cli.runs.preflight.test_probe import submitted
from worker.context import WorkerContext
from worker.runs import validations


def a_finished_validation(story: Story, blobs: DiskStore) -> str:
    run_id = story.running(a_validation())
    store_rows(blobs, run_id, rows())
    story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
    story.finish(run_id, 0)
    return run_id


def test_show_prints_numbers_and_the_reasons_of_failures(
    hc: Invoke, story: Story, blobs: DiskStore
) -> None:
    run_id = a_finished_validation(story, blobs)
    shown = hc("validate", "--show", run_id).stdout
    assert "validation of 5 tasks, coverage 100 %" in shown
    row = next(line.split() for line in shown.splitlines() if line.startswith("github "))
    assert row == ["github", "2", "0", "2", "0", "0"]
    assert "github-1: the verifier gives the untouched start state 1" in shown
    assert "teacher: 9 requests (1 retries), 900 input tokens, 80 output tokens" in shown
    as_json = from_json(hc("validate", "--show", run_id, "--json"))
    assert [row["task_key"] for row in as_json["rows"]] == [row.task_key for row in rows()]
    assert "validates tasks and trains nothing" in hc("show", run_id).stdout


def test_a_spec_is_validated_followed_and_shown(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("spec") / "spec.yaml"
    path.write_text("name: mine\ndata: {env_keys: [booking, github]}\n")
    done = []
    watching = Thread(target=lambda: done.append(hc("validate", str(path))))
    watching.start()
    run_id = submitted(story)
    story.launch(run_id)
    store_rows(blobs, run_id, rows())
    story.push(run_id, story.started(run_id))
    story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
    story.finish(run_id, 0, ReasonCode.COMPLETED)
    watching.join(30.0)
    assert done[0].exit_code == Exit.OK
    assert "validation: 3 valid, 2 excluded" in done[0].stdout
    assert "github-0: the verifier gives" in done[0].stdout


def of_fleet(num_excluded: int = 2) -> list[TaskValidation]:
    """Return `rows()` under the keys that the dataset's tasks have."""
    return [
        row.model_copy(update={"task_key": row.task_key.replace("-", "-00")})
        for row in rows(num_excluded=num_excluded)
    ]


def parts_with(story: Story, blobs: DiskStore) -> WorkerContext:
    delivery = Delivery(database=story.database, slack=None, public_url="http://127.0.0.1:1")
    return WorkerContext(database=story.database, store=blobs, owner="worker-1", delivery=delivery)


def a_dataset(hc: Invoke, folder: Path) -> Path:
    """Register the tasks of `rows()` as `fleet`, and return a spec of its validation."""
    (folder / "tasks.jsonl").write_bytes(lines(tasks(booking=12, github=12)))
    (folder / "spec.yaml").write_text("name: x\nkind: validate\ndata: {dataset: fleet}\n" + PLAYED)
    assert hc("datasets", "create", "fleet", str(folder / "tasks.jsonl")).exit_code == 0
    return folder / "spec.yaml"


def carry_out(story: Story, blobs: DiskStore, run_id: str) -> None:
    found = of_fleet()
    story.launch(run_id)
    store_rows(blobs, run_id, found)
    story.push(run_id, story.started(run_id))
    story.push(run_id, story.validated(run_id, summarise_tasks(found).model_dump()))
    story.finish(run_id, 0)


def stored(story: Story) -> str:
    """Wait for the run that a command in a thread submits; its output is captured meanwhile."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with story.database.transaction() as session:
            found = session.scalar(select(Run.id))
        if found is not None:
            return found
    raise AssertionError("nothing was submitted")


def test_what_failed_is_left_out_of_the_datasets_next_version(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = a_dataset(hc, tmp_path_factory.mktemp("dataset"))
    run_id = from_json(hc("submit", str(spec), "--json"))["id"]
    carry_out(story, blobs, run_id)
    for _ in range(2):  # repeating it changes nothing
        said = hc("validate", "--show", run_id, "--exclude")
        assert said.exit_code == Exit.OK, said.stderr
        assert "2 tasks are excluded from fleet: the next version will not use them" in said.stdout
    listed = from_json(hc("datasets", "exclusions", "fleet", "--json"))["data"]
    assert [(each["key"], each["source"]) for each in listed] == [
        ("github-000", "validation"),
        ("github-001", "validation"),
    ]
    assert listed[0]["reason"].startswith("passes_untouched: the verifier gives")
    second = from_json(hc("datasets", "create", "fleet", "fleet@1", "--json"))
    assert second["num_excluded"] == 2


def test_a_script_has_failures_excluded_and_is_told_how_many(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = a_dataset(hc, tmp_path_factory.mktemp("dataset"))
    done = []
    watching = Thread(target=lambda: done.append(hc("validate", str(spec), "--exclude", "--json")))
    watching.start()
    run_id = stored(story)
    carry_out(story, blobs, run_id)
    watching.join(30.0)
    assert done[0].exit_code == Exit.OK, done[0].stderr
    last = json.loads(done[0].stdout.splitlines()[-1])
    assert last == {"object": "exclusions", "dataset": "fleet", "num_tasks": 2}
    listed = from_json(hc("datasets", "exclusions", "fleet", "--json"))["data"]
    assert [each["key"] for each in listed] == ["github-000", "github-001"]
    shown = from_json(hc("validate", "--show", run_id, "--exclude", "--json"))
    assert shown["excluded"] == last
    assert len(shown["rows"]) == 5


def test_generated_tasks_are_not_validated_in_vain(hc: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: mine\ndata: {env_keys: [booking]}\n")
    result = hc("validate", str(path), "--exclude")
    assert result.exit_code == Exit.USAGE
    assert "the spec generates its tasks" in result.stderr
    assert from_json(hc("runs", "--json"))["data"] == []


def ended_validation(
    hc: Invoke, story: Story, blobs: DiskStore, folder: Path, *settings: str
) -> str:
    """A run on the dataset `fleet` that has found two of its tasks to fail."""
    (folder / "tasks.jsonl").write_bytes(lines(tasks(booking=12, github=12)))
    (folder / "spec.yaml").write_text("name: x\nkind: validate\ndata: {dataset: fleet}\n" + PLAYED)
    assert hc("datasets", "create", "fleet", str(folder / "tasks.jsonl")).exit_code == 0
    run_id = str(from_json(hc("submit", str(folder / "spec.yaml"), *settings, "--json"))["id"])
    found = of_fleet()
    story.launch(run_id)
    store_rows(blobs, run_id, found)
    story.push(run_id, story.started(run_id))
    story.push(run_id, story.validated(run_id, summarise_tasks(found).model_dump()))
    return run_id


def test_a_validation_leaves_out_what_failed_by_itself_and_once(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    run_id = ended_validation(hc, story, blobs, folder, "--set", "validation.exclude=true")
    parts = parts_with(story, blobs)
    assert validations.sweep(parts, now=story.now) == 0, "it has not ended"
    story.finish(run_id, 0)
    hc("datasets", "exclude", "fleet", "github-000", "--reason", "known before")
    assert [validations.sweep(parts, now=story.now) for _ in range(2)] == [1, 0]
    listed = from_json(hc("datasets", "exclusions", "fleet", "--json"))["data"]
    assert [(each["key"], each["source"], each["created_by"]) for each in listed] == [
        ("github-000", "user", "key:test"),
        ("github-001", "validation", f"run:{run_id}"),
    ]
    assert listed[1]["reason"].startswith("passes_untouched: the verifier gives")
    watched = hc("watch", run_id, "--json").stdout.splitlines()
    (told,) = [json.loads(line) for line in watched if '"validation.excluded"' in line]
    assert told["data"] == {
        "dataset": "fleet",
        "num_failed": 2,
        "num_excluded": 1,
        "problem": None,
    }
    second = from_json(hc("datasets", "create", "fleet", "fleet@1", "--json"))
    assert second["num_excluded"] == 2


class BrokenFor(DiskStore):
    """A store that fails for the files of one run."""

    def __init__(self, root: Path, run_id: str, error: Exception) -> None:
        super().__init__(root)
        self._run_id, self._error = run_id, error

    def size(self, key: str) -> int:
        self._fail(key)
        return super().size(key)

    def get(self, key: str) -> bytes:
        self._fail(key)
        return super().get(key)

    def _fail(self, key: str) -> None:
        if self._run_id in key:
            raise self._error


WRITTEN_WRONGLY = {
    b'{"verdict": "excluded", "env_key": "github"}\n': "are damaged",
    b'{"verdict": "excluded", "env_key": "x", "task_key": ""}\n': "no dataset can have",
    b'{"verdict": "excluded", "env_key": "x", "task_key": "k"}\n' * 25: "than its dataset",
}


def test_what_one_trainer_wrote_wrongly_does_not_keep_the_other_validations_waiting(
    hc: Invoke,
    story: Story,
    blobs: DiskStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    *bad, good = (
        ended_validation(hc, story, blobs, folder, "--set", "validation.exclude=true")
        for _ in range(4)
    )
    for run_id, stored in zip(bad, WRITTEN_WRONGLY, strict=True):
        blobs.put(run_key(run_id, attempt_name(1), VALIDATION_ROWS), gzip.compress(stored))
        story.finish(run_id, 0)
    story.finish(good, 0)
    parts = parts_with(story, blobs)
    assert validations.sweep(parts, now=story.now) == 2, "of the good one"
    for run_id, problem in zip(bad, WRITTEN_WRONGLY.values(), strict=True):
        assert problem in hc("watch", run_id, "--json").stdout
    with story.database.transaction() as session:
        assert waiting_runs(session, now=story.now) == []


@pytest.mark.parametrize("error", [StoreError("no route"), RuntimeError("a fault of ours")])
def test_a_validation_that_cannot_be_dealt_with_now_leaves_the_others_their_turn(
    hc: Invoke,
    story: Story,
    blobs: DiskStore,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    bad, good = (
        ended_validation(hc, story, blobs, folder, "--set", "validation.exclude=true")
        for _ in range(2)
    )
    story.finish(bad, 0)
    story.finish(good, 0)
    monkeypatch.setattr(validation_exclusions, "AT_ONCE", 1)
    parts = parts_with(story, BrokenFor(blobs.local_path("x").parent, bad, error))
    found = [validations.sweep(parts, now=story.now) for _ in range(60)]
    assert sum(found) == 2
    with story.database.transaction() as session:
        assert waiting_runs(session, now=story.now) == [bad]


def test_a_report_that_comes_after_the_first_was_dealt_with_is_dealt_with_too(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    run_id = ended_validation(hc, story, blobs, folder, "--set", "validation.exclude=true")
    story.finish(run_id, 0)
    parts = parts_with(story, blobs)
    assert validations.sweep(parts, now=story.now) == 2
    store_rows(blobs, run_id, of_fleet(num_excluded=5))
    with story.database.transaction() as session:
        run = lock_run(session, run_id)
        first = newest_event(session, run_id, TYPE)
        assert first is not None
        append(session, run, [Draft(type=TYPE, at=story.now, attempt=1, data=first.data)])
    assert [validations.sweep(parts, now=story.now) for _ in range(2)] == [3, 0]


@pytest.mark.parametrize("by_itself", [True, False])
def test_what_failed_stays_out_after_the_end_of_a_passing_exclusion(
    hc: Invoke,
    story: Story,
    blobs: DiskStore,
    tmp_path_factory: pytest.TempPathFactory,
    by_itself: bool,
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    run_id = ended_validation(hc, story, blobs, folder, "--set", "validation.exclude=true")
    story.finish(run_id, 0)
    for key, ends in (("github-000", ()), ("github-001", ("--for", "7d"))):
        told = hc("datasets", "exclude", "fleet", key, "--reason", "of mine", *ends)
        assert told.exit_code == 0, told.stderr
    if by_itself:
        assert validations.sweep(parts_with(story, blobs), now=story.now) == 1
    else:
        said = from_json(hc("validate", "--show", run_id, "--exclude", "--json"))
        assert said["excluded"]["num_tasks"] == 2
    listed = from_json(hc("datasets", "exclusions", "fleet", "--json"))["data"]
    assert [(each["key"], each["source"], each["expires_at"]) for each in listed] == [
        ("github-000", "user", None),
        ("github-001", "validation", None),
    ]
    assert listed[0]["reason"] == "of mine"


@pytest.mark.parametrize("settings", [(), ("--set", "validation.exclude=false")])
def test_a_validation_that_is_not_asked_to_excludes_nothing(
    hc: Invoke,
    story: Story,
    blobs: DiskStore,
    tmp_path_factory: pytest.TempPathFactory,
    settings: tuple[str, ...],
) -> None:
    run_id = ended_validation(hc, story, blobs, tmp_path_factory.mktemp("dataset"), *settings)
    story.finish(run_id, 0)
    with story.database.transaction() as session:
        assert waiting_runs(session, now=story.now) == []


def test_a_validation_whose_rows_are_lost_says_so_and_is_not_tried_for_ever(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    run_id = ended_validation(hc, story, blobs, folder, "--set", "validation.exclude=true")
    story.finish(run_id, 0)
    blobs.delete_prefix(run_key(run_id, attempt_name(1)))
    assert exclude_what_failed(story.database, blobs, run_id, now=story.now) == 0
    assert exclude_what_failed(story.database, blobs, run_id, now=story.now) is None
    told = hc("watch", run_id, "--json").stdout
    assert "The rows of the validation are not in the store." in told


def test_generated_tasks_have_nothing_to_be_excluded_from(
    hc: Invoke, story: Story, blobs: DiskStore
) -> None:
    result = hc("validate", "--show", a_finished_validation(story, blobs), "--exclude")
    assert result.exit_code == Exit.USAGE
    assert "only a registered dataset has exclusions" in result.stderr


def test_a_validation_needs_a_spec_or_a_run(hc: Invoke) -> None:
    result = hc("validate")
    assert result.exit_code == Exit.USAGE
    assert "give a SPEC to validate, or --show RUN" in result.stderr
    idle = hc("validate", "--show", "run_" + 26 * "0", "--set", "data.env_keys=[github]")
    assert (idle.exit_code, "--set changes a SPEC" in idle.stderr) == (Exit.USAGE, True)
