"""`hillclimb datasets` against the real application."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hillclimb.cli.dataset_options import parse_end
from hillclimb.cli.exits import Exit
from tests.api.datasets.samples import lines, task, tasks
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(lines(tasks(booking=60, github=60)))
    return path


def test_a_dataset_is_made_looked_at_and_compared(hc: Invoke, file: Path, tmp_path: Path) -> None:
    made = hc("datasets", "create", "fleet", str(file), "--held-out-env", "github")
    assert made.exit_code == 0, made.stderr
    assert "fleet@1" in made.stdout
    assert "120 tasks: 54 train, 66 eval, 0 excluded" in made.stdout
    assert "lint: errors 0, warnings " in made.stdout
    assert max(map(len, made.stdout.splitlines())) <= 80
    listed = hc("datasets", "list")
    assert "fleet@1" in listed.stdout
    more = ["--set", "split.eval_ratio=0.2", "--env", "booking", "--max-tasks", "50", "--json"]
    second = from_json(hc("datasets", "create", "fleet", "fleet@1", *more))
    assert (second["number"], second["num_tasks"], second["source"]) == (2, 50, "fleet@1")
    compared = hc("datasets", "diff", "fleet@1", "fleet")
    assert "fleet@1 → fleet@2: 0 added, 70 removed" in compared.stdout
    shown = hc("datasets", "rows", "fleet", "--split", "eval", "--limit", "2")
    assert "more: add --cursor" in shown.stdout
    pulled = from_json(hc("datasets", "pull", "fleet@1", str(tmp_path / "here"), "--json"))
    first = json.loads(gzip.decompress(Path(pulled["files"][0]).read_bytes()).splitlines()[0])
    assert first["key"] == "booking-000"
    versions = hc("datasets", "show", "fleet", "--versions")
    assert [line.split()[0] for line in versions.stdout.splitlines()[1:]] == ["fleet@2", "fleet@1"]


@pytest.mark.parametrize("key", ["task#2", "a?b", "x/../y", "..", "50%25", "a b/c"])
def test_a_task_is_found_by_whatever_key_it_has(hc: Invoke, tmp_path: Path, key: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(lines([task("booking", 2, key=key), task("booking", 3, key="task")]))
    assert hc("datasets", "create", "odd", str(file)).exit_code == 0
    found = from_json(hc("datasets", "rows", "odd", "--key", key, "--json"))
    assert found["key"] == key


def test_a_published_split_is_followed(hc: Invoke, file: Path, tmp_path: Path) -> None:
    keys = [row["key"] for row in tasks(booking=60, github=60)]
    table = tmp_path / "split.json"
    table.write_text(json.dumps({"train": keys[:100], "validation": keys[100:]}))
    made = hc("datasets", "create", "fleet", str(file), "--published", str(table), "--json")
    version = from_json(made)
    assert (version["num_train"], version["num_eval"]) == (100, 20)
    assert version["options"]["split"]["policy"] == "published"


def test_what_is_kept_out_is_listed_and_let_in_again(hc: Invoke, file: Path) -> None:
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    said = hc("datasets", "quarantine", "fleet", "github", "--for", "3d", "--reason", "502")
    assert "github" in said.stdout
    assert hc("datasets", "exclude", "fleet", "booking-001", "--reason", "no date").exit_code == 0
    listed = from_json(hc("datasets", "exclusions", "fleet", "--json"))
    assert [each["key"] for each in listed["data"]] == ["github", "booking-001"]
    spec = file.with_name("spec.yaml")
    spec.write_text("name: x\ndata: {dataset: fleet}\n")
    refused = hc("plan", str(spec), "--set", "schedule.train_batch_size=60")
    assert refused.exit_code == Exit.REFUSED
    assert "larger than the number of training tasks" in refused.stderr
    plan = hc("plan", str(spec))
    assert "github is left out: it is in quarantine until" in plan.stderr
    assert json.loads(plan.stdout)["data"]["env_keys"] == ["booking"]
    submitted = hc("submit", str(spec))
    assert "warning: github is left out" in submitted.stderr
    assert hc("datasets", "include", "fleet", "github", "--env").exit_code == 0
    again = hc("datasets", "include", "fleet", "github", "--env")
    assert (again.exit_code, "excludes no env" in again.stderr) == (Exit.USAGE, True)


def test_mistakes_are_sentences(hc: Invoke, file: Path) -> None:
    bad = file.with_name("bad.json")
    bad.write_bytes(b'[{"key": "a"}, 3]')
    empty = file.with_name("empty.json")
    empty.touch()
    refused = hc("datasets", "create", "fleet", str(bad))
    assert refused.exit_code == Exit.REFUSED
    assert "error: row 1 (a), field prompt: is missing" in refused.stderr
    for arguments, sentence in (
        (("create", "fleet", "none.json"), "there is no file none.json"),
        (("create", "fleet", str(empty)), "is empty"),
        (("create", "fleet", str(file), "--parent", "v"), "'v' is no version: write NAME@3"),
        (("create", "fleet", str(file), "--published", str(bad)), "a published split is"),
        (("create", "fleet", "s3://other/x"), "is not among the sources"),
        (("show", "fleet@x"), "write NAME@3"),
        (("show", "nowhere"), "There is no dataset 'nowhere'"),
        (("lint", "fleet", "--tool-tokens", "github"), "write ENV=N"),
        (("quarantine", "fleet", "github", "--reason", "x", "--for", "soon"), "write 3d, 12h"),
    ):
        answer = hc("datasets", *arguments)
        assert answer.exit_code in (Exit.USAGE, Exit.REFUSED, Exit.NOT_FOUND), answer.output
        assert sentence in answer.stderr


@pytest.mark.parametrize("text", ["2026-03-01", "2026-03-01T10:00:00+02:00", "90m"])
def test_an_end_has_a_time_zone(text: str) -> None:
    assert parse_end(text).endswith(("+00:00", "+02:00"))
