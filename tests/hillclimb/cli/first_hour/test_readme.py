"""README's lines: each one is a command that exists, and all of them run one after another."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from hillclimb.cli.commands import main
from hillclimb.cli.tools.first_spec import TEMPLATE
from hillclimb.spec.run import RunSpec

ROOT = Path(__file__).parents[4]
LINE = re.compile(r"^\$ ((?:.*\\\n)*.*)", re.MULTILINE)


def lines() -> list[str]:
    """The lines of the blocks of commands, without comments, continued ones joined."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found = [match[1].replace("\\\n", " ") for block in blocks for match in LINE.finditer(block)]
    return [re.sub(r"\s+# .*", "", line).strip() for line in found]


COMMANDS = [line for line in lines() if line.startswith("hillclimb ")]


def test_the_blocks_are_found() -> None:
    assert len(COMMANDS) > 15
    assert sum(line.startswith("curl ") for line in lines()) == 2


@pytest.mark.parametrize("line", COMMANDS)
def test_a_line_is_a_command_with_options_that_it_has(line: str) -> None:
    command: click.Command = main
    context, words = None, shlex.split(line.partition(" > ")[0])
    while isinstance(command, click.Group):
        context = click.Context(command, info_name=words[0], parent=context)
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
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {name: value for name, value in os.environ.items() if name[:10] != "HILLCLIMB_"}
    environment |= {
        "HILLCLIMB_STATE_DIR": str(tmp_path / "state"),
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HILLCLIMB_HOME": str(ROOT),
    }
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
        subprocess.run(["hillclimb", "down"], env=environment, cwd=tmp_path, check=False)


@pytest.mark.long
def test_the_lines_run_one_after_another(shell: subprocess.Popen[str]) -> None:
    """RUN is the newest run; `down` comes last; followers and streams are cut off after a while."""
    for line in lines():
        if line.startswith(("make", "source")) or line == "hillclimb down":
            continue
        _, printed = run(shell, line)
        if "submit mine.yaml" in line:
            _, shown = run(shell, "hillclimb show @last --json")
            trained = json.loads(shown)["id"]
            run(shell, f"TRAINED={trained}")
        assert "Traceback" not in printed


def run(shell: subprocess.Popen[str], line: str) -> tuple[int, str]:
    """Run a line as a user does who reads on: what a run that has ended refuses, he expects."""
    line = re.sub(r"/runs/RUN/", "/runs/$TRAINED/", line)
    line = re.sub(r"\bRUN\b", "${TRAINED:-@last}", line)
    if line.startswith("curl -N") or line.endswith(" -f"):
        line = f"timeout 20 {line}"
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(f"{line}\necho; echo =END= $?\n")
    shell.stdin.flush()
    printed = []
    for text in shell.stdout:
        if text.startswith("=END= "):
            break
        printed.append(text)
    output = "".join(printed)
    code = int(text.split()[1])
    refused_after_the_end = re.search(r"hillclimb (pause|cancel) ", line) is not None
    # resume of a run that has finished, and a second `resume --watch`, have nothing to continue.
    may_refuse = refused_after_the_end or "resume" in line
    assert code == 0 or may_refuse or "timeout" in line, f"{line}\n{output}"
    return code, output
