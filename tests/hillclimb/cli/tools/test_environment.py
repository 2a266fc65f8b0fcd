"""`hillclimb env init` and `env check`: the files, and refusals in a sentence."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from benchmarks.envs.own_environment import PAGE, SERVES, commands, run_page
from hillclimb.cli.commands import complete, main
from hillclimb.client.spec_file import read_spec
from hillclimb.spec.run import RunSpec
from tests.hillclimb.cli.first_hour.own_stack import environment_in


def invoke(*words: str) -> Result:
    return CliRunner(mix_stderr=False).invoke(main, ["env", *words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "mine"
    assert invoke("init", str(target)).exit_code == 0
    return target


def test_the_environment_has_fewer_than_40_lines_that_compile(folder: Path) -> None:
    source = (folder / "environment.py").read_text()
    assert len(source.splitlines()) < 40
    compile(source, "environment.py", "exec")


def test_its_specs_are_valid_and_find_the_demonstrations(folder: Path) -> None:
    warm_start = RunSpec.model_validate(read_spec(folder / "warm_start.yaml"))
    assert warm_start.kind == "sft"
    assert warm_start.sft.demonstrations == str(folder / "demonstrations.jsonl")
    train = RunSpec.model_validate(yaml.safe_load((folder / "train.yaml").read_text()))
    assert train.data.dataset == warm_start.data.dataset
    assert train.environment.openenv == warm_start.environment.openenv


def test_no_demonstration_is_of_a_task_and_every_one_shows_the_goal(folder: Path) -> None:
    tasks, shown = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("tasks.jsonl", "demonstrations.jsonl")
    )
    prompts = {task["prompt"] for task in tasks}
    assert len(prompts) == len(tasks) == 600
    assert not prompts & {row["messages"][0]["content"] for row in shown}
    for row in shown:
        sent = row["messages"][-1]["tool_calls"][0]["function"]
        assert sent["arguments"]["town"] in row["messages"][0]["content"]
    share = sum(len(row["messages"]) == 2 for row in shown) / len(shown)
    assert 0.5 < share < 0.8


def test_files_of_the_user_are_not_overwritten_unless_forced(folder: Path) -> None:
    (folder / "environment.py").write_text("mine")
    refused = invoke("init", str(folder))
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert (folder / "environment.py").read_text() == "mine"
    assert invoke("init", str(folder), "--force").exit_code == 0
    assert (folder / "environment.py").read_text() != "mine"


def test_a_path_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = invoke("init", str(tmp_path / "file" / "below"))
    assert refused.exit_code == 1
    assert "Traceback" not in refused.stderr
    assert "Not a directory" in refused.stderr


def test_a_key_reaches_the_check_through_the_environment_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(
        "hillclimb.cli.tools.environment.commands.become",
        lambda _module, words, environment: became.append((list(words), dict(environment))),
    )
    monkeypatch.setenv("MY_KEY", "from-variable\r\n")
    headers = ("--header", "X-A: written", "--header-from", "X-B:MY_KEY")
    assert invoke("check", "https://example.com", *headers).exit_code == 0
    ((words, environment),) = became
    sent = [word.partition("=")[2].split(":") for word in words if word[:13] == "--header-from"]
    assert {name: environment[variable] for name, variable in sent} == {
        "X-A": "written",
        "X-B": "from-variable",
    }
    assert "written" not in " ".join(words)


@pytest.mark.parametrize(
    ("option", "text", "sentence"),
    [
        ("--header", "hc_SECRET", "write --header NAME:VALUE"),
        ("--header", "A:SECRETü", "--header A holds what no header can carry"),
        ("--header-from", "A:NOT_SET_ANYWHERE", "the variable NOT_SET_ANYWHERE is not set"),
        ("--header-from", "A:EMPTY_KEY", "EMPTY_KEY is empty"),
    ],
)
def test_a_header_that_cannot_be_sent_is_a_sentence_without_its_value(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str, sentence: str
) -> None:
    monkeypatch.setenv("EMPTY_KEY", " ")
    refused = invoke("check", "http://127.0.0.1:9", option, text)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert "SECRET" not in refused.stderr


@pytest.mark.parametrize("line", commands(PAGE.read_text()))
def test_each_line_of_the_page_is_a_command_with_options_that_it_has(line: str) -> None:
    if line.startswith(SERVES):
        return
    group: click.Command = complete()
    context, words = None, shlex.split(line)
    while isinstance(group, click.Group):
        settings = {} if context else main.context_settings
        context = click.Context(group, info_name=words[0], parent=context, **settings)
        group, words = group.commands[words[1]], words[1:]
    group.make_context(words[0], words[1:], parent=context)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The embedded stack, with its state in a folder of its own."""
    for name, value in environment_in(tmp_path).items():
        monkeypatch.setenv(name, value)
    words = [sys.executable, "-m", "hillclimb.cli"]
    subprocess.run([*words, "up", "--detach"], check=True)
    yield
    subprocess.run([*words, "down"], check=True)


@pytest.mark.long
@pytest.mark.usefixtures("stack")
def test_ones_own_environment_climbs_as_the_page_says(tmp_path: Path) -> None:
    figures = run_page(tmp_path)
    assert figures["verdict"] == "improved", figures
