"""What a sloppy user types: a sentence and an exit code, never a stack trace or a secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hillclimb.cli.commands import complete
from hillclimb.cli.terminal.exits import Exit
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json

SPEC = "name: mine\ndata: {env_keys: [booking]}\nschedule: {total_steps: 4}\n"


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize("end", ["\r", " ", "\n", "\t"])
def test_a_key_with_a_line_end_of_windows_works(
    hc: Invoke, served: Served, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setenv("HILLCLIMB_API_KEY", served.key + end)
    monkeypatch.setenv("HILLCLIMB_API_URL", served.url + end)
    assert from_json(hc("runs", "--json"))["data"] == []


@pytest.mark.parametrize("key", ["hc_\rSECRET", "hc_ SECRET", "hc_SECRETü", "hc_SECRET\x00"])
def test_a_key_that_no_request_can_carry_is_not_printed(
    hc: Invoke, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    if "\x00" in key:
        monkeypatch.setattr(os, "environ", {**os.environ, "HILLCLIMB_API_KEY": key})
    else:
        monkeypatch.setenv("HILLCLIMB_API_KEY", key)
    for more in ((), ("--json",)):
        result = hc("runs", *more)
        assert result.exit_code == Exit.UNREACHABLE
        assert "HILLCLIMB_API_KEY has a space" in result.stderr
        assert "SECRET" not in result.output + result.stderr


def test_a_key_that_is_refused_is_named_by_where_it_came_from(
    hc: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILLCLIMB_API_KEY", "hc_of_another_service")
    refused = hc("runs")
    assert refused.exit_code == Exit.REFUSED
    assert "error: The API key is not valid.\nit is the key in HILLCLIMB_API_KEY" in refused.stderr


def test_an_address_with_https_of_a_service_without_it_names_the_other(
    hc: Invoke, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILLCLIMB_API_URL", served.url.replace("http://", "https://"))
    refused = hc("runs")
    assert refused.exit_code == Exit.UNREACHABLE
    assert "write its address with http:// instead of https://" in refused.stderr
    assert "hillclimb up" not in refused.stderr


def test_a_spec_with_a_section_twice_is_refused_by_file_and_service(
    hc: Invoke, served: Served, tmp_path: Path
) -> None:
    twice = tmp_path / "twice.yaml"
    twice.write_text(SPEC + "schedule: {train_batch_size: 4, mini_batch_size: 2}\n")
    result = hc("plan", str(twice))
    assert result.exit_code == Exit.USAGE
    assert "line 4: the key 'schedule' is there twice" in result.stderr
    body = b'{"name": "a", "data": {"env_keys": ["booking"]}, "data": {"env_keys": ["github"]}}'
    with served.client() as client:
        answer = client.post("/v1/runs", content=body)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("The key 'data' is there twice")


def test_aliases_that_stand_for_billions_are_refused(hc: Invoke, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    bomb.write_text("\n".join(lines))
    result = hc("plan", str(bomb))
    assert result.exit_code == Exit.USAGE
    assert "its aliases stand for more than" in result.stderr


def test_a_byte_order_mark_is_no_mistake_in_a_file_and_a_sentence_in_a_body(
    hc: Invoke, served: Served, spec_file: Path
) -> None:
    spec_file.write_bytes(b"\xef\xbb\xbf" + SPEC.encode())
    assert hc("plan", str(spec_file)).exit_code == Exit.OK
    with served.client() as client:
        answer = client.post("/v1/runs", content=b"\xef\xbb\xbf{}")
    assert answer.json()["detail"].startswith("The body begins with a byte order mark")


def test_a_dash_reads_the_spec_from_standard_input(served: Served) -> None:
    done = cli(served, "plan", "-", "--json", text=SPEC)
    assert done.returncode == Exit.OK
    assert '"name": "mine"' in done.stdout


def test_what_this_machine_cannot_write_is_a_sentence(
    served: Served, story: Story, tmp_path: Path
) -> None:
    story.running()
    (tmp_path / "file").touch()
    for place in ("/proc/x/y", str(tmp_path / "file" / "y")):
        done = cli(served, "fleet", "tasks", "--env", "booking", "--split", "eval", "-n", "1",
                   "--out", place)  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (Exit.ERROR, False)
        assert done.stderr.startswith(f"error: {place}")
    with Path("/dev/full").open("w") as full:
        done = cli(served, "runs", stdout=full)
    assert (done.returncode, "Traceback" in done.stderr) == (Exit.ERROR, False)
    assert "No space left on device" in done.stderr


def cli(
    served: Served, *args: str, text: str = "", stdout: object = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: what happens at its exit counts too."""
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    return subprocess.run(
        [sys.executable, "-m", "hillclimb.cli", *args],
        env={**os.environ, **environment},
        input=text,
        stdout=stdout,  # type: ignore[arg-type]
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )


EMPTY = (
    ("runs", "hillclimb submit SPEC"),
    ("members list", "hillclimb members set"),
    ("datasets list", "hillclimb datasets create"),
    ("experiment list", "hillclimb experiment create"),
    ("campaign list", "hillclimb campaign create"),
    ("issue list", "hillclimb issue create"),
    ("webhooks list", "hillclimb webhooks create"),
    ("agent-key list", "hillclimb agent-key create"),
    ("slack links", "hillclimb slack link"),
)


@pytest.mark.parametrize(("words", "teaches"), EMPTY)
def test_an_empty_list_is_a_sentence_with_the_next_command(
    hc: Invoke, story: Story, words: str, teaches: str
) -> None:
    listed = hc(*words.split())
    assert listed.exit_code == Exit.OK
    assert teaches in listed.stdout
    group, command = complete(), teaches.split()[1:]
    while isinstance(group, click.Group) and command and not command[0].isupper():
        group = group.commands[command.pop(0)]  # type: ignore[assignment]


def test_what_a_run_does_not_have_yet_is_said(hc: Invoke, story: Story) -> None:
    run_id = story.submit()
    assert "no lines yet" in hc("logs", run_id).stderr
    assert "there is no attempt 7: the newest is 0" in hc("logs", run_id, "--attempt", "7").stderr
    assert "no line fits" in hc("logs", run_id, "--grep", "x").stderr
    assert hc("metrics", run_id).stdout.startswith("no metrics yet")
    assert hc("metrics", run_id, "reward").stdout.startswith("no metric fits")
    assert hc("trajectories", run_id).stdout.startswith("no rollouts yet")
    assert hc("trajectories", run_id, "--decoding", "x").stdout.startswith("no rollouts fit")
    nothing = hc("pull", run_id, "weights")
    assert (nothing.exit_code, "has no checkpoint yet" in nothing.stderr) == (Exit.NOT_FOUND, True)


def test_a_misspelt_environment_and_a_missing_title_say_what_to_write(hc: Invoke) -> None:
    refused = hc("fleet", "tasks", "--env", "bookng", "--split", "eval", "-n", "1")
    assert (refused.exit_code, "did you mean 'booking'?" in refused.stderr) == (Exit.USAGE, True)
    refused = hc("experiment", "create", "v1")
    assert (refused.exit_code, "--title TEXT" in refused.stderr) == (Exit.USAGE, True)


def test_a_misspelt_status_says_first_what_is_wrong_then_what_there_is(hc: Invoke) -> None:
    refused = hc("runs", "--status", "sucess")
    assert refused.exit_code == Exit.REFUSED
    assert refused.stderr.startswith("error: unknown status 'sucess'; did you mean 'succeeded'?")
    assert "There are queued, " in refused.stderr


@pytest.mark.parametrize(
    "words",
    ["trajectories RUN", "logs RUN", "prompts RUN", "signal RUN", "patterns RUN", "preview SPEC"],
)
def test_an_environment_that_the_run_does_not_have_is_refused_with_those_that_it_has(
    hc: Invoke, story: Story, spec_file: Path, words: str
) -> None:
    run_id = story.submit()
    named = [{"RUN": run_id, "SPEC": str(spec_file)}.get(word, word) for word in words.split()]
    refused = hc(*named, "--env", "bookng")
    assert refused.exit_code == Exit.NOT_FOUND
    owner = named[-1]
    assert f"{owner} has no environment 'bookng'; did you mean 'booking'? It has" in refused.stderr
    assert len(from_json(hc("runs", "--json"))["data"]) == 1, "a preview is not submitted"
