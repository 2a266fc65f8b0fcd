"""A version is made of every part: filters, exclusions, split, table, lint and hashes."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.filter.filters import FilterOptions
from hillclimb.datasets.format.lineage import Lineage
from hillclimb.datasets.format.ranks import md5_share
from hillclimb.datasets.format.rows import DatasetError, PromptlessRow, content_hash
from hillclimb.datasets.format.stored import read_split_line, split_line
from hillclimb.datasets.prepare import PrepareOptions, prepare
from hillclimb.datasets.split.policies import Md5ThresholdPolicy, RankPolicy
from tests.hillclimb.datasets.tasks import task, tasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OPTIONS = PrepareOptions()


def test_a_version_says_everything_about_itself() -> None:
    rows = tasks({"booking": 100, "zillow": 20, "dropbox": 3})
    exclusions = [
        Exclusion(scope="env", key="dropbox", reason="does not start"),
        Exclusion(scope="task", key="task_zillow_1", reason="no date", source="lint"),
        Exclusion(scope="env", key="booking", reason="was down", expires_at=NOW),
    ]
    made = prepare([*rows, rows[0]], OPTIONS, now=NOW, exclusions=exclusions)
    assert [row.key for row in made.rows] == [each.key for each in made.split]
    assert [row.key for row in made.rows] == sorted(row.key for row in rows)
    reasons = {each.key: each.reason for each in made.split if each.split == "excluded"}
    assert reasons == {
        "task_dropbox_0": "user: does not start",
        "task_dropbox_1": "user: does not start",
        "task_dropbox_2": "user: does not start",
        "task_zillow_1": "lint: no date",
    }
    assert [(c.env_key, c.train, c.eval, c.excluded, c.total) for c in made.table] == [
        ("booking", 90, 10, 0, 100),
        ("dropbox", 0, 0, 3, 3),
        ("zillow", 19, 0, 1, 20),
    ]
    assert (made.num_read, made.dropped) == (124, {"duplicates": 1})
    assert [(each.key, each.count, each.differing) for each in made.duplicates] == [
        ("task_booking_0", 1, 0)
    ]
    assert {found.code for found in made.findings} >= {"duplicate_key", "no_eval"}


def test_rows_without_a_prompt_are_dropped_with_their_keys() -> None:
    """Only the historic rule counts them: 100 tasks and 100 of these give it 20 eval tasks."""
    rows = tasks({"booking": 100})
    empty = [
        PromptlessRow(key=key, env_key="booking", task_modality="tool_use", difficulty=None)
        for key in ("task_booking_1", "b", "a", "a", *map(str, range(10, 107)))
    ]
    made = prepare([*empty, *rows], OPTIONS, now=NOW)
    assert made.dropped == {"empty_prompts": 101}
    assert made.empty_prompts[-3:] == ("a", "b", "task_booking_1")
    assert made.num_read == 201
    assert made.split == prepare(rows, OPTIONS, now=NOW).split
    historic = PrepareOptions(split=Md5ThresholdPolicy(max_env_train_share=None))
    split = prepare([*empty, *rows], historic, now=NOW).split
    evals = {each.key for each in split if each.split == "eval"}
    assert evals == {row.key for row in rows if md5_share(row.key) < 20 / 199}
    out = [Exclusion(scope="task", key=each.key, reason="out") for each in empty[4:]]
    assert prepare([*empty, *rows], historic, now=NOW, exclusions=out).table[0].eval == sum(
        md5_share(row.key) < 20 / 102 for row in rows
    )
    of_two = PrepareOptions(filters=FilterOptions(max_tasks=102, max_tasks_by="file_order"))
    assert len(prepare([*empty, *rows], of_two, now=NOW).rows) == 1


def test_what_is_excluded_counts_for_no_modality() -> None:
    rows = [*tasks({"booking": 20}), task("eyes", task_modality="computer_use")]
    assert prepare(rows, OPTIONS, now=NOW).table[0].modalities == {
        "computer_use": 1,
        "tool_use": 20,
    }
    blind = Exclusion(scope="task", key="eyes", reason="needs a screen")
    made = prepare(rows, OPTIONS, now=NOW, exclusions=[blind])
    assert made.table[0].modalities == {"tool_use": 20}
    assert made.table[0].total == 21


def test_the_digest_is_of_rows_and_split_whatever_their_order() -> None:
    rows = tasks({"booking": 100, "zillow": 60})
    made = prepare(rows, OPTIONS, now=NOW)
    shuffled = prepare(random.Random(1).sample(rows, len(rows)), OPTIONS, now=NOW)
    assert shuffled == made
    assert made.content_hash == content_hash(rows)
    salted = prepare(rows, PrepareOptions(split=RankPolicy(salt=1)), now=NOW)
    assert salted.content_hash == made.content_hash
    assert salted.digest != made.digest
    edited = [rows[0].model_copy(update={"prompt": "Other."}), *rows[1:]]
    assert prepare(edited, OPTIONS, now=NOW).digest != made.digest


def test_the_hashes_are_these_on_every_machine() -> None:
    """Written down once, with the whole path from rows to digest behind them."""
    made = prepare(tasks({"booking": 100, "zillow": 60}), OPTIONS, now=NOW)
    assert (made.content_hash[:16], made.split_hash[:16]) == WRITTEN_DOWN


WRITTEN_DOWN = ("8ecf5e6d628a0e9b", "75f81ccfb12bcce5")


def test_a_split_row_is_read_as_it_was_written() -> None:
    made = prepare(tasks({"booking": 60}, prompt="Ünï"), OPTIONS, now=NOW)
    assert tuple(read_split_line(split_line(row)) for row in made.split) == made.split
    assert json.loads(split_line(made.split[0])).keys() == {"key", "split", "reason", "fingerprint"}


def test_a_version_without_tasks_is_refused() -> None:
    options = PrepareOptions(filters=FilterOptions(env_keys=("github",), difficulty=(1,)))
    with pytest.raises(DatasetError, match=r"no task is left of 7 rows \(difficulty 2, env_keys 5"):
        prepare([*tasks({"booking": 5}), *tasks({"github": 2})], options, now=NOW)
    with pytest.raises(DatasetError, match="no task is left of 0 rows"):
        prepare([], OPTIONS, now=NOW)


def test_options_say_what_they_do_not_know() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        PrepareOptions.model_validate({"split": {"policy": "rank", "eval_share": 0.1}})
    with pytest.raises(ValidationError, match="has no effect without max_tasks"):
        FilterOptions(max_tasks_by="file_order")
    with pytest.raises(ValidationError, match="env_keys is empty"):
        FilterOptions(env_keys=())
    body = '{"split": {"policy": "md5_threshold", "held_out_envs": {"tool_use": ["outlook"]}}}'
    assert PrepareOptions.model_validate_json(body).split.policy == "md5_threshold"


def test_a_quarantine_ends_by_itself() -> None:
    rows = tasks({"booking": 60})
    until = [
        Exclusion(scope="env", key="booking", reason="502", source="validation", expires_at=NOW)
    ]
    during = prepare(rows, OPTIONS, now=NOW - timedelta(seconds=1), exclusions=until)
    after = prepare(rows, OPTIONS, now=NOW, exclusions=until)
    assert {each.reason for each in during.split} == {"validation: 502"}
    assert {each.split for each in after.split} == {"train", "eval"}


def test_a_task_stays_an_eval_task_from_version_to_version() -> None:
    first = prepare(tasks({"booking": 100}), OPTIONS, now=NOW)
    lineage = Lineage.of([first.split])
    second = prepare(tasks({"booking": 1000}), OPTIONS, now=NOW, lineage=lineage)
    before = {each.key for each in first.split if each.split == "eval"}
    after = {each.key for each in second.split if each.split == "eval"}
    assert (len(before), len(after)) == (10, 60)
    assert before < after
    assert not {each.key for each in first.split if each.split == "train"} & after


def test_copies_are_kept_or_dropped() -> None:
    rows = [task("b", prompt="Same."), task("a", prompt="Same."), *tasks({"booking": 9})]
    kept = prepare(rows, OPTIONS, now=NOW)
    dropped = prepare(rows, PrepareOptions(filters=FilterOptions(copies="drop")), now=NOW)
    assert [each.keys for each in kept.copies] == [each.keys for each in dropped.copies]
    assert kept.copies[0].keys == ("a", "b")
    assert {row.key for row in kept.rows} - {row.key for row in dropped.rows} == {"b"}
    assert dropped.dropped == {"copies": 1}
