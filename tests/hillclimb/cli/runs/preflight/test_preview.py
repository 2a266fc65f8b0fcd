"""`hillclimb preview`: how long it waits for a runner that counts many prompts."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest

from hillclimb.cli.runs.preflight import prompts
from tests.hillclimb.client.payloads import run_json
from tests.hillclimb.client.test_client import client_of


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that moves only where the command sleeps: 100 s each time."""
    made = SimpleNamespace(now=0.0)
    made.monotonic = lambda: made.now
    made.sleep = lambda _: setattr(made, "now", made.now + 100.0)
    monkeypatch.setattr(prompts, "time", made)
    return made


def a_run(status: str, last_seq: int) -> httpx.Response:
    return httpx.Response(200, json=run_json(status=status, last_seq=last_seq))


def test_a_preview_is_waited_for_as_long_as_it_gives_signs_of_life(clock: SimpleNamespace) -> None:
    counting = [a_run("running", 4 + number // 2) for number in range(20)]
    with client_of(*counting, a_run("succeeded", 15)) as client:
        prompts._await_end(client, "run_1", 300.0)
    assert clock.now == 2000.0


def test_a_preview_that_falls_silent_is_given_up(clock: SimpleNamespace) -> None:
    silent = [a_run("running", 5)] * 5
    with (
        client_of(*silent, a_run("cancelling", 6)) as client,
        pytest.raises(prompts.PreviewFailed, match="run_1 made no progress for 300 s"),
    ):
        prompts._await_end(client, "run_1", 300.0)
    assert clock.now == 400.0


def test_a_preview_that_waits_says_for_what_once(capsys: pytest.CaptureFixture[str]) -> None:
    queue = {"position": 1, "reason": "All 1 runner slots are in use."}
    queued = httpx.Response(200, json=run_json(status="queued", last_seq=1, queue=queue))
    with client_of(queued, queued, a_run("running", 4), a_run("succeeded", 9)) as client:
        prompts._await_end(client, "run_1", 300.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["queued: All 1 runner slots are in use.", "running"]


def test_a_preview_that_is_paused_says_at_once_why(clock: SimpleNamespace) -> None:
    reason = {"code": "environment_down", "category": "user", "retryable": False,
              "message": "the OpenEnv server does not answer: start it"}  # fmt: skip
    paused = httpx.Response(200, json=run_json(status="paused", last_seq=5, end_reason=reason))
    with (
        client_of(a_run("running", 4), paused, a_run("cancelled", 6)) as client,
        pytest.raises(prompts.PreviewFailed, match="paused: the OpenEnv server does not answer"),
    ):
        prompts._await_end(client, "run_1", 300.0)
    assert clock.now == 100.0
