"""A run is named by its id, the beginning of it, its name or `@last`, wherever a RUN is taken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from hillclimb.cli.commands import complete as complete_command_line
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.run_reference import RunReference
from hillclimb.client.errors import RunUnknown
from hillclimb.client.resources.references import split_step
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from commands(each, f"{path}{name} ")
        else:
            yield f"{path}{name}", each


def test_every_argument_of_a_run_takes_its_name() -> None:
    by_number = {"experiment remove"}
    """It takes the run's number in the experiment too."""
    plain = {
        path
        for path, each in commands(complete_command_line())
        for parameter in each.params
        if (parameter.metavar or "").strip("[]").startswith(("RUN", "A[@", "B[@"))
        and not isinstance(parameter.type, RunReference)
    }
    assert plain == by_number


def test_a_run_is_found_by_id_prefix_name_and_last(hc: Invoke, story: Story) -> None:
    first, second = story.running(spec("first-one")), story.running(spec("second"))
    for words in (first, first[:-3], first.removeprefix("run_")[:-3], "first-one"):
        assert from_json(hc("show", words, "--json"))["id"] == first
    assert from_json(hc("show", "@last", "--json"))["id"] == second
    assert first in hc("cancel", "first-one").stdout


def test_a_step_follows_whatever_names_the_run(hc: Invoke, story: Story) -> None:
    run_id = story.running(spec("climb"))
    story.push(run_id, story.checkpoint(run_id, 6))
    for words in ("@last@6", "climb@6", f"{run_id[:-2]}@6"):
        assert from_json(hc("eval", words, "--json"))["spec"]["lineage"]["resumed_from"] == {
            "run_id": run_id,
            "step": 6,
            "attempt": 1,
        }
    refused = hc("eval", "climb@10")
    assert refused.exit_code == Exit.NOT_FOUND
    assert "steps with one: 6" in refused.stderr


def test_several_runs_of_one_name_are_listed_instead_of_chosen_from(
    hc: Invoke, story: Story
) -> None:
    ids = [story.submit(spec("twin")) for _ in range(2)]
    result = hc("cancel", "twin")
    assert result.exit_code == Exit.USAGE
    assert all(run_id in result.stderr for run_id in ids)
    assert "several runs are 'twin', newest first" in result.stderr
    assert from_json(hc("show", ids[0], "--json"))["status"] == "queued"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("clmb", "did you mean 'climb'?"),
        ("CLIM", "did you mean 'climb'?"),
        ("run_zzz", "hillclimb runs lists them"),
        ("", "no run is named: write an id"),
    ],
)
def test_an_unknown_run_is_a_sentence_with_what_was_meant(
    hc: Invoke, story: Story, words: str, sentence: str
) -> None:
    story.submit(spec("climb"))
    result = hc("show", words)
    assert result.exit_code == Exit.NOT_FOUND
    assert sentence in result.stderr


def test_without_a_run_last_says_so(hc: Invoke) -> None:
    assert "There is no run yet" in hc("show", "@last").stderr


def test_runs_of_another_project_are_not_found(hc: Invoke, served: Served, story: Story) -> None:
    run_id = story.submit(spec("secret-plan"))
    with served.client(served.stranger_key) as client:
        assert client.get("/v1/runs", params={"match": "secret-plan"}).json()["data"] == []
        assert client.get("/v1/runs", params={"match": run_id[:12]}).json()["data"] == []
    assert run_id in hc("show", "secret-plan").stdout


def test_a_prefix_is_text_and_no_pattern(served: Served, story: Story) -> None:
    story.submit(spec("climb"))
    with served.client() as client:
        for text in ("%", "_", "run_%"):
            assert client.get("/v1/runs", params={"match": text}).json()["data"] == []


def test_run_and_step_are_two_parts() -> None:
    assert split_step("@last") == ("@last", None)
    assert split_step("a@") == ("a", "")
    with pytest.raises(RunUnknown):
        split_step("a@1@2")


@pytest.mark.parametrize(
    ("words", "meant"),
    [("sumbit", "submit"), ("datasets creat", "create"), ("trajectory x", "trajectories")],
)
def test_a_misspelt_command_is_answered_with_what_was_meant(
    hc: Invoke, words: str, meant: str
) -> None:
    result = hc(*words.split())
    assert result.exit_code == Exit.USAGE
    assert f"did you mean {meant}" in result.stderr


def test_a_word_like_no_command_is_answered_with_the_few_that_there_are(hc: Invoke) -> None:
    result = hc("accept", "kubernetes")
    assert result.exit_code == Exit.USAGE
    assert "there are cluster, fleet, gpu, s3, show, slack, tinker, wandb" in result.stderr
    assert "there are" not in hc("kubernetes").stderr


def test_the_shell_completes_runs(served: Served, story: Story) -> None:
    run_id = story.submit(spec("climb"))
    story.submit(spec("other"))
    completed = complete(served, "show cl", "2")
    assert completed == ["climb"]
    assert run_id in complete(served, f"watch {run_id[:8]}", "2")
    assert complete(served, "watch @", "2") == ["@last"]
    assert complete(None, "watch cl", "2") == []


def test_the_shell_completes_environments(served: Served, story: Story) -> None:
    story.submit(spec("climb", env_keys=("booking", "github")))
    assert complete(served, "trajectories climb --env g", "4") == ["github"]
    assert complete(served, "patterns @last --env ", "4") == ["booking", "github"]
    assert complete(served, "signal other --env b", "4") == []
    assert complete(None, "fleet tasks --env bo", "4") == ["booking"]


def complete(served: Served | None, words: str, place: str) -> list[str]:
    """Ask as bash does when the user presses the tab key."""
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb.cli"],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "_HILLCLIMB_COMPLETE": "bash_complete",
            "COMP_WORDS": f"hillclimb {words}",
            "COMP_CWORD": place,
            "HILLCLIMB_API_URL": served.url if served else "http://127.0.0.1:1",
            "HILLCLIMB_API_KEY": served.key if served else "hc_x",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]
