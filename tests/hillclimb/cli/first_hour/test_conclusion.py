"""A run says in its last line what was learned; without a gradient it is no plain success."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

from api.runs import store
from api.scheduling.advance import advance
from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.outcomes import StopReason
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json

ENVS = ("booking", "github", "ticketmaster")


def trained(story: Story, name: str, *, before: float, after: float, rate: float) -> str:
    """A run that trained two steps at this pass rate, evaluated before and after."""
    run_id = story.running(spec(name))
    story.push(run_id, story.evaluation(run_id, 0, dict.fromkeys(ENVS, before)))
    for step in (1, 2):
        story.push(run_id, story.step(run_id, step, dict.fromkeys(ENVS, rate)))
    story.push(run_id, story.evaluation(run_id, 2, dict.fromkeys(ENVS, after)))
    story.finish(run_id, 2)
    with story.database.transaction() as session:
        advance(session, store.lock_run(session, run_id), now=story.now)
    return run_id


def test_a_run_without_a_gradient_is_no_plain_success(hc: Invoke, story: Story) -> None:
    run_id = trained(story, "stuck", before=0.0, after=0.0, rate=0.0)
    watched = hc("watch", run_id)
    assert watched.exit_code == Exit.NOTHING_LEARNED
    line = watched.stdout.splitlines()[-1]
    assert line.startswith("nothing was learned: no step had a gradient: 0 % of 192 rollouts")
    assert line in hc("show", run_id).stdout
    run = from_json(hc("show", run_id, "--json"))
    assert (run["status"], run["conclusion"]["has_learned"]) == ("succeeded", False)


def test_a_run_that_improved_says_so_in_payload_list_and_terminal(hc: Invoke, story: Story) -> None:
    run_id = trained(story, "climb", before=0.2, after=0.8, rate=0.5)
    watched = hc("watch", run_id)
    assert watched.exit_code == Exit.OK
    assert watched.stdout.splitlines()[-1].startswith("improved: pass@1 20.0 → 80.0 %")
    (row,) = from_json(hc("runs", "--json"))["data"]
    assert row["result"]["verdict"] == "improved"
    assert "20 → 80" in hc("runs").stdout


def test_a_run_that_goes_on_has_no_conclusion(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    assert from_json(hc("show", run_id, "--json"))["conclusion"] is None


COMMANDS = (
    "runs", "show climb-with-a-rather-long-name", "trajectories @last", "presets",
    "signal @last", "metrics @last", "guards @last", "verdicts @last", "keys list", "audit",
)  # fmt: skip
ONE_AFTER_ANOTHER = """
import sys
from hillclimb.cli.commands import main
for words in sys.argv[1:]:
    print(f"$ {words}", flush=True)
    main(words.split(), prog_name="hillclimb", standalone_mode=False)
"""


def test_no_table_wraps_at_80_columns(served: Served, story: Story) -> None:
    """In one process: ten would take 0.6 s each to start."""
    for place in range(2):
        trained(story, f"stuck-{place}", before=0.0, after=0.0, rate=0.0)
    trained(story, "climb-with-a-rather-long-name", before=0.2, after=0.8, rate=0.5)
    screen = printed(served, ["-c", ONE_AFTER_ANOTHER, *COMMANDS], columns=80)
    screens = [each.partition("\n") for each in screen.removeprefix("$ ").split("\n$ ")]
    assert [words for words, _, _ in screens] == list(COMMANDS)
    for words, _, shown in screens:
        assert shown, words
        wide = [line for line in shown.splitlines() if len(line) > 80]
        assert [line for line in wide if "  " in line.strip()] == [], (words, shown)
    runs = screens[0][2]
    assert "IMPROVED" in runs
    assert "20 → 80" in runs
    assert "climb-with-a-rath" in runs
    assert "succeeded" in runs


def test_rollouts_with_ids_of_real_length_fit_80_columns(served: Served, story: Story) -> None:
    run_id = story.running()
    step = story.step(run_id, 3, {"booking": 0.5}, tasks=1)
    place = "1/3/train/train/booking/train/cheapest_today_mine/432997"
    rows = tuple(
        row.model_copy(update={"rollout_id": f"{place}/{row.sample_index}",
                               "stop_reason": StopReason.MAX_GENERATE_LENGTH})
        for row in step.outcomes
    )  # fmt: skip
    story.push(run_id, step.model_copy(update={"outcomes": rows}))
    screen = terminal(served, ["trajectories", run_id], columns=80)
    assert [line for line in screen.splitlines() if len(line) > 80] == [], screen
    assert f"{place}/7" in screen


def test_the_command_for_the_next_page_is_one_line_that_works(
    hc: Invoke, served: Served, story: Story
) -> None:
    for name in ("first", "second", "third"):
        story.submit(spec(name))
    for screen in (terminal(served, ["runs", "--limit", "1"], columns=80),
                   hc("runs", "--limit", "1").stdout):  # fmt: skip
        line = next(each for each in screen.splitlines() if each.startswith("more: "))
        next_page = hc(*line.removeprefix("more: hillclimb ").split())
        assert "second" in next_page.stdout
        assert "third" not in next_page.stdout


def test_a_submitted_run_is_one_line(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: mine\ndata: {env_keys: [booking]}\nschedule: {total_steps: 4}\n")
    first = terminal(served, ["submit", str(path)], columns=80).splitlines()[0]
    assert first.startswith("run_")
    assert first.split()[-1].startswith(f"{served.url}/runs/run_")


def terminal(served: Served, words: list[str], *, columns: int) -> str:
    """Return what a command prints in a terminal of that width, as the program sends it."""
    return printed(served, ["-m", "hillclimb.cli", *words], columns=columns)


def printed(served: Served, arguments: list[str], *, columns: int) -> str:
    """Return what Python prints there, started with these arguments."""
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **environment, "NO_COLOR": "1", "TERM": "dumb"},
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    output = b""
    while True:
        try:
            block = os.read(parent, 65536)
        except OSError:  # Linux reports the end of a terminal so.
            break
        if not block:
            break
        output += block
    os.close(parent)
    assert process.wait(60) == 0, output.decode()
    return output.decode().replace("\r\n", "\n")
