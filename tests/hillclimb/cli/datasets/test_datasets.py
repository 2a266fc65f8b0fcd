"""`hillclimb datasets` against the real application."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from hillclimb.cli.datasets.options import parse_end
from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.run import RunSpec
from tests.api.datasets.samples import PLAYED, lines, task, tasks
from tests.api.fixtures.story import Story
from tests.api.fixtures.story import spec as story_spec
from tests.api.results.preflight.test_prompts import rendered
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
    misspelt = hc("datasets", "rows", "fleet@1", "--env", "bookng")
    assert "fleet@1 has no environment 'bookng'; did you mean 'booking'? It" in misspelt.stderr
    pulled = from_json(hc("datasets", "pull", "fleet@1", str(tmp_path / "here"), "--json"))
    first = json.loads(gzip.decompress(Path(pulled["files"][0]).read_bytes()).splitlines()[0])
    assert first["key"] == "booking-000"
    versions = hc("datasets", "show", "fleet", "--versions")
    assert [line.split()[0] for line in versions.stdout.splitlines()[1:]] == ["fleet@2", "fleet@1"]


@pytest.mark.parametrize("below", ["/proc/x", "tasks.jsonl/y", ""])
def test_a_directory_that_cannot_be_written_is_a_sentence(
    hc: Invoke, file: Path, tmp_path: Path, below: str
) -> None:
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    target = str(tmp_path / below) if below else ""
    refused = hc("datasets", "pull", "fleet", target)
    assert isinstance(refused.exception, SystemExit), refused.exception
    assert refused.exit_code in (Exit.ERROR, Exit.USAGE)
    assert (target or "it is empty") in refused.stderr


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


def test_the_split_that_pull_wrote_is_a_published_split(
    hc: Invoke, file: Path, tmp_path: Path
) -> None:
    first = ["datasets", "create", "fleet", str(file), "--eval-ratio", "0.2", "--json"]
    one = from_json(hc(*first))
    pulled = from_json(hc("datasets", "pull", "fleet@1", str(tmp_path / "here"), "--json"))
    split = next(each for each in pulled["files"] if each.endswith(".split.jsonl.gz"))
    two = from_json(hc("datasets", "create", "again", str(file), "--published", split, "--json"))
    assert two["split_hash"] == one["split_hash"]
    plain = tmp_path / "split.jsonl"
    plain.write_bytes(gzip.decompress(Path(split).read_bytes()))
    again = ("datasets", "create", "once", str(file), "--published", str(plain), "--json")
    three = from_json(hc(*again))
    assert three["split_hash"] == one["split_hash"]
    plain.write_bytes(plain.read_bytes()[:-20])
    torn = hc("datasets", "create", "torn", str(file), "--published", str(plain))
    assert "is neither JSON nor JSON lines" in torn.stderr
    Path(plain).write_bytes(Path(split).read_bytes()[:-20])
    cut = hc("datasets", "create", "torn", str(file), "--published", str(plain))
    assert "is damaged or truncated" in cut.stderr


def test_a_split_of_one_task_is_no_table_by_key(hc: Invoke, tmp_path: Path) -> None:
    one, split = tmp_path / "one.jsonl", tmp_path / "split.jsonl"
    one.write_bytes(lines(tasks(booking=1)))
    split.write_text('{"fingerprint":"f","key":"booking-000","reason":null,"split":"eval"}\n')
    made = hc("datasets", "create", "one", str(one), "--published", str(split), "--json")
    assert from_json(made)["num_eval"] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("create", "x", "FILE", "--published", "SPLIT", "--policy", "rank"),
            "so --policy has no effect",
        ),
        (("create", "x", "FILE", "--published", "SPLIT", "--eval-ratio", "0.2"), "so --eval-ratio"),
        (("create", "x", "FILE", "--published", "SPLIT", "--held-out-env", "a"), "--held-out-env"),
        (
            ("create", "x", "FILE", "--eval-ratio", "0.2", "--set", "split.eval_ratio=0.1"),
            "--eval-ratio and --set split.eval_ratio set the same option: use one of them",
        ),
        (
            ("create", "x", "FILE", "--env", "booking", "--set", "filters={modality: tool_use}"),
            "--env has no effect with --set filters, which sets all of it",
        ),
        (
            ("create", "x", "FILE", "--held-out-env", "x", "--set", "split={policy: rank}"),
            "--held-out-env has no effect with --set split, which sets all of it",
        ),
        (
            ("create", "x", "FILE", "--published", "SPLIT", "--set", "split={policy: rank}"),
            "--published has no effect with --set split, which sets all of it",
        ),
        (("lint", "fleet", "--tool-tokens", "github=9"), "--tool-tokens has no effect alone"),
        (("show", "fleet@1", "--versions"), "leave @1 out"),
        (("rows", "fleet", "--key", "a", "--env", "github"), "--env has no effect"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    hc: Invoke, file: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    given = [{"FILE": str(file), "SPLIT": str(file)}.get(each, each) for each in arguments]
    answer = hc("datasets", *given)
    assert answer.exit_code == Exit.USAGE
    assert sentence in answer.stderr


def a_leak(hc: Invoke, folder: Path) -> str:
    """A dataset in which one eval task is asked in training too, and a spec that uses it."""
    rows = [*tasks(booking=60), task("booking", 0, key="again")]
    (folder / "leaky.jsonl").write_bytes(lines(rows))
    split = {row["key"]: "eval" if row["key"] < "booking-010" else "train" for row in rows}
    (folder / "split.json").write_text(json.dumps({**split, "again": "train"}))
    made = ("create", "leaky", str(folder / "leaky.jsonl"))
    assert hc("datasets", *made, "--published", str(folder / "split.json")).exit_code == 0
    (folder / "leaky.yaml").write_text("name: x\ndata: {dataset: leaky}\n" + PLAYED)
    return str(folder / "leaky.yaml")


def test_a_leak_stops_a_run_and_leaves_its_trace_where_it_is_allowed(
    hc: Invoke, tmp_path: Path
) -> None:
    spec = a_leak(hc, tmp_path)
    for command in ("submit", "plan"):
        refused = hc(command, spec)
        assert refused.exit_code == Exit.REFUSED
        assert "lint finds in leaky@1: leak in booking (1 of 10 eval tasks" in refused.stderr
        assert "allow it with data.allow_lint: [leak]" in refused.stderr
    submitted = hc("submit", spec, "--set", "data.allow_lint=[leak]", "--json")
    run = json.loads(submitted.stdout)
    assert "warning: lint finds leak in booking (1 of 10" in submitted.stderr
    assert "warning: lint finds leak in booking" in hc("show", run["id"]).stdout
    (told,) = from_json(hc("show", run["id"], "--json"))["warnings"]
    assert told.startswith("lint finds leak in booking")
    assert hc("cancel", run["id"]).exit_code == 0
    assert "warning: lint finds leak in booking" in hc("watch", run["id"]).stdout
    looked_at = hc("submit", spec, "--set", "kind=preview")
    assert looked_at.exit_code == 0
    assert "warning: lint finds leak" in looked_at.stderr


def test_an_ended_run_goes_on_though_its_environment_is_in_quarantine_now(
    hc: Invoke, story: Story, file: Path
) -> None:
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    spec = file.with_name("spec.yaml")
    spec.write_text("name: x\ndata: {dataset: fleet}\n" + PLAYED)
    run_id = from_json(hc("submit", str(spec), "--json"))["id"]
    story.launch(run_id)
    story.push(run_id, story.started(run_id), story.checkpoint(run_id, 5))
    assert hc("cancel", run_id).exit_code == 0
    story.finish(run_id, 5, ReasonCode.RUNNER_STOPPED)
    hc("datasets", "quarantine", "fleet", "github", "--for", "1d", "--reason", "502")
    resumed = from_json(hc("resume", run_id, "--json"))
    assert resumed["id"] != run_id
    assert resumed["spec"]["data"]["env_keys"] == ["booking", "github"]
    (told,) = from_json(hc("show", resumed["id"], "--json"))["warnings"]
    assert told.startswith("github is used although it is in quarantine until")
    named = hc("submit", str(spec), "--set", "data.env_keys=[booking,github]")
    assert (named.exit_code, "in quarantine" in named.stderr) == (Exit.REFUSED, True)


def test_lint_takes_the_tokens_of_tools_that_a_run_counted(
    hc: Invoke, story: Story, file: Path
) -> None:
    there = yaml.safe_load(PLAYED) | {"kind": "preview"}
    told = story_spec().model_dump(mode="json") | there
    preview = story.running(RunSpec.model_validate(told))
    story.push(preview, rendered(story, preview, booking="a"))
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    again = ("datasets", "lint", "fleet", "--max-input-length", "300", "--json")
    linted = from_json_of_errors(hc(*again))
    (over,) = [each for each in linted["data"] if each["code"] == "tools_over_budget"]
    source = f"counted by {preview} (preview, {story_spec().model.source})"
    assert over["message"] == f"the tools take 300 of 300 tokens, {source}"
    typed = ("--tool-tokens", "booking=10", "--max-input-length", "300")
    assert hc("datasets", "lint", "fleet", *typed).exit_code == 0
    more = ("--set", "lint.max_input_length=400", "--json")
    second = from_json(hc("datasets", "create", "fleet", str(file), *more))
    (crowded,) = [each for each in second["lint"] if each["code"] == "tools_crowd_context"]
    assert crowded["message"] == f"the tools take 300 of 400 tokens, {source}"
    spec = file.with_name("spec.yaml")
    spec.write_text("name: x\ndata: {dataset: fleet}\nrollout: {max_input_length: 300}\n" + PLAYED)
    refused = hc("submit", str(spec))
    assert refused.exit_code == Exit.REFUSED
    assert "tools_over_budget in booking (the tools take 300 of 300 tokens" in refused.stderr
    other = hc("submit", str(spec), "--set", f"model.source=hf:a/b@{'0' * 40}")
    assert other.exit_code == 0, "another tokenizer counts differently"


def from_json_of_errors(result: Result) -> Any:
    """What a command that found errors printed."""
    assert result.exit_code == Exit.ERROR, result.output
    return json.loads(result.stdout)


def test_an_exclusion_may_end_by_itself(hc: Invoke, file: Path) -> None:
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    keep_out = ("datasets", "exclude", "fleet")
    assert hc(*keep_out, "booking-001", "--for", "7d", "--reason", "its app is down").exit_code == 0
    assert hc(*keep_out, "github", "--env", "--until", "2999-03-01", "--reason", "x").exit_code == 0
    ends = {
        each["key"]: each["expires_at"]
        for each in from_json(hc("datasets", "exclusions", "fleet", "--json"))["data"]
    }
    assert ends["github"].startswith("2999-03-01T00:00:00")
    left = datetime.fromisoformat(ends["booking-001"]) - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < left < timedelta(days=7)


def test_what_is_kept_out_is_listed_and_let_in_again(hc: Invoke, file: Path) -> None:
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    said = hc("datasets", "quarantine", "fleet", "github", "--for", "3d", "--reason", "502")
    assert "github" in said.stdout
    assert hc("datasets", "exclude", "fleet", "booking-001", "--reason", "no date").exit_code == 0
    listed = from_json(hc("datasets", "exclusions", "fleet", "--json"))
    assert [each["key"] for each in listed["data"]] == ["github", "booking-001"]
    spec = file.with_name("spec.yaml")
    spec.write_text("name: x\ndata: {dataset: fleet}\n" + PLAYED)
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
        (("create", "fleet", str(file), "--parent", "v"), "'v' is not a version: write NAME@3"),
        (("create", "fleet", str(file), "--published", str(bad)), "a published split is"),
        (("create", "fleet", "s3://other/x"), "is not among the sources"),
        (("show", "fleet@x"), "write NAME@3"),
        (("show", "nowhere"), "There is no dataset 'nowhere': `hillclimb datasets create"),
        (("lint", "fleet", "--tool-tokens", "github"), "write ENV=N"),
        (("exclude", "fleet", "a", "--reason", "x", "--for", "soon"), "write 3d, 12h"),
        (("quarantine", "fleet", "github", "--reason", "x", "--for", "soon"), "write 3d, 12h"),
    ):
        answer = hc("datasets", *arguments)
        assert answer.exit_code in (Exit.USAGE, Exit.REFUSED, Exit.NOT_FOUND), answer.output
        assert sentence in answer.stderr


@pytest.mark.parametrize("text", ["2026-03-01", "2026-03-01T10:00:00+02:00", "90m"])
def test_an_end_has_a_time_zone(text: str) -> None:
    assert parse_end(text).endswith(("+00:00", "+02:00"))
