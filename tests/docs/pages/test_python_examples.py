"""The Python examples of the client run against the real application, and pages name them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hillclimb.client.client import Client
from hillclimb.stack.state.connection import Connection
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.docs.pages.named_commands import ROOT

__all__ = ["blobs", "served", "story", "story_url"]


@contextmanager
def started(served: Served, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An example as a process of a user who has a key of the service."""
    command = [sys.executable, ROOT / "examples" / name, *arguments]
    environment = os.environ | {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def submitted(served: Served, number: int) -> list[str]:
    """Wait until so many runs were submitted; return their ids."""
    with Client(Connection(url=served.url, api_key=served.key)) as client:
        while len(runs := client.runs().data) < number:
            threading.Event().wait(0.05)
        return [run.id for run in runs]


def test_a_spec_is_submitted_followed_and_judged(story: Story, served: Served) -> None:
    spec = str(ROOT / "examples" / "booking.yaml")
    with started(served, "client_train.py", spec, "schedule.total_steps=2") as process:
        (run_id,) = submitted(served, 1)
        story.launch(run_id)
        story.push(run_id, story.started(run_id), story.evaluation(run_id, 0, {"booking": 0.1}))
        story.push(run_id, story.evaluation(run_id, 2, {"booking": 0.9}))
        story.finish(run_id, 2)
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[0] == f"{served.url}/runs/{run_id}"
    assert lines[1] == "1 run.created"
    assert lines[-3:] == [
        "booking-small succeeded",
        "step 0 -> 2",
        "booking (sampled): 10.0% -> 90.0%, n=60, IMPROVED",
    ]


def test_a_refused_spec_is_a_sentence_and_an_exit_code(served: Served) -> None:
    spec = str(ROOT / "examples" / "booking.yaml")
    with started(served, "client_train.py", spec, "schedule.total_steps=-1") as process:
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (1, "")
    assert errors.startswith("/schedule/total_steps: ")


def test_several_seeds_are_followed_at_once(story: Story, served: Served) -> None:
    spec = str(ROOT / "examples" / "booking.yaml")
    with started(served, "client_seeds.py", spec, "1", "2") as process:
        run_ids = submitted(served, 2)
        for run_id in run_ids:
            story.launch(run_id)
            story.push(run_id, story.started(run_id), story.step(run_id, 1, {"booking": 0.5}))
        for run_id in run_ids:
            story.finish(run_id, 1)
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    lines = printed.splitlines()
    assert {f"{run_id} step 1" for run_id in run_ids} <= set(lines[:-2])
    assert {line.split()[2] for line in lines[-2:]} == set(run_ids)
    assert all(line.startswith("seed ") and line.endswith("succeeded") for line in lines[-2:])


@pytest.mark.parametrize("name", ["client_train.py", "client_seeds.py"])
def test_the_page_of_the_client_names_the_example(name: str) -> None:
    assert f"examples/{name}" in (ROOT / "docs" / "client.md").read_text()
    assert "examples/client_train.py" in (ROOT / "README.md").read_text()
