"""README's lines: each one is a command that exists, and all of them run one after another."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml

from hillclimb.cli.commands import complete
from hillclimb.cli.tools.first_spec import TEMPLATE
from hillclimb.client.client import Client
from hillclimb.protocol.payloads.runs import RunPayload
from hillclimb.spec.run import RunSpec
from hillclimb.stack.state.connection import connection
from tests.hillclimb.cli.first_hour.own_stack import ROOT, environment_in, stop_in

FOLLOWED_S = 5
"""Followers of a run that has ended are cut off after this."""
LINE = re.compile(r"^\$ ((?:.*\\\n)*.*)", re.MULTILINE)


def lines() -> list[str]:
    """The lines of the blocks of commands, without comments, continued ones joined."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found = [match[1].replace("\\\n", " ") for block in blocks for match in LINE.finditer(block)]
    return [re.sub(r"\s+# .*", "", line).strip() for line in found]


COMMANDS = [line for line in lines() if line.startswith("hillclimb ")]


def test_the_blocks_are_found() -> None:
    assert len(COMMANDS) > 15
    assert sum(line.startswith("curl ") for line in lines()) == 3


@pytest.mark.parametrize("line", COMMANDS)
def test_a_line_is_a_command_with_options_that_it_has(line: str) -> None:
    command: click.Command = complete()
    context, words = None, shlex.split(line.partition(" > ")[0])
    while isinstance(command, click.Group):
        # With the group's own settings: a command keeps the help option that it makes first.
        settings = {} if context else complete().context_settings
        context = click.Context(command, info_name=words[0], parent=context, **settings)
        command = command.commands[words[1]]
        words = words[1:]
    command.make_context(words[0], words[1:], parent=context)


def test_a_step_that_a_line_names_is_one_that_its_run_saves() -> None:
    named = {int(step) for line in COMMANDS for step in re.findall(r"RUN@(\d+)", line)}
    spec = RunSpec.model_validate(yaml.safe_load(TEMPLATE.read_text()))
    interval = spec.checkpoints.interval
    assert named <= set(range(interval, spec.schedule.total_steps + 1, interval))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell in an empty directory with the stack of this directory."""
    for name in ("examples", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = environment_in(tmp_path)
    process = subprocess.Popen(
        ["bash"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with process:  # waits for it and closes its pipes
            yield process
            process.kill()
    finally:
        process.kill()
        stop_in(tmp_path, environment)


def test_the_lines_of_make_name_targets_that_exist() -> None:
    for line in lines():
        if line.startswith("make "):
            done = subprocess.run(
                ["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_lines_run_one_after_another(shell: subprocess.Popen[str], tmp_path: Path) -> None:
    """RUN is the run trained or posted last; followers and streams are cut off after a while.

    Two lines are not run: `make demo` and `make test` would run this test in itself.
    """
    assert lines()[-1] == "hillclimb down"
    for line in lines():
        if line.startswith("make "):
            continue
        printed = run(shell, line)
        assert "Traceback" not in printed
        if "submit mine.yaml --set" in line or line.endswith("/v1/runs"):
            run(shell, f"NAMED={last(tmp_path).id}")
        for end, condition in READ_ON.items():
            if line.endswith(end):
                wait_for(tmp_path, condition)


READ_ON: dict[str, Callable[[RunPayload], bool]] = {
    "hillclimb submit mine.yaml": lambda run: run.progress.step >= 1,
    "hillclimb pause @last": lambda run: run.status == "paused",
    "hillclimb cancel @last": lambda run: run.status == "cancelled",
    "/cancel": lambda run: run.status == "cancelled",
}
"""By the end of a line: what a user sees before typing the next one."""


def last(folder: Path) -> RunPayload:
    """Return the newest run of the stack in `folder`."""
    found = connection(folder / "state")
    assert found is not None
    with Client(found) as client:
        return client.run(client.find_run("@last"))


def wait_for(folder: Path, condition: Callable[[RunPayload], bool]) -> None:
    end = time.monotonic() + 300.0
    while not condition(shown := last(folder)):
        assert time.monotonic() < end, shown
        time.sleep(0.5)


def run(shell: subprocess.Popen[str], line: str) -> str:
    """Run a line and return what it prints; nothing may be refused."""
    line = re.sub(r"/runs/RUN/", "/runs/$NAMED/", line)
    line = re.sub(r"\bRUN\b", "$NAMED", line)
    if line.startswith("curl -N") or line.endswith(" -f"):
        line = f"timeout {FOLLOWED_S} {line}"
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(f"{line}\ncode=$?; echo; echo =END= $code\n")
    shell.stdin.flush()
    printed = []
    for text in shell.stdout:
        if text.startswith("=END= "):
            break
        printed.append(text)
    output = "".join(printed)
    assert int(text.split()[1]) == 0 or "timeout" in line, f"{line}\n{output}"
    return output
