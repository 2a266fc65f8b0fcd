"""The examples of docs/client.md run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

from hillclimb.client.client import Client
from hillclimb.stack.state.connection import Connection
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.docs.pages.named_commands import ROOT

__all__ = ["blobs", "served", "story", "story_url"]


def cancel_when_there(served: Served) -> None:
    """End the run that the first example submits, and follows."""
    with Client(Connection(url=served.url, api_key=served.key)) as client:
        while not (runs := client.runs().data):
            threading.Event().wait(0.05)
        client.cancel(runs[0].id)


def test_both_examples_follow_a_run_to_its_end(served: Served) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(), re.S)
    environment = os.environ | {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    threading.Thread(target=cancel_when_there, args=(served,), daemon=True).start()
    printed = [
        subprocess.run(
            [sys.executable, "-c", example],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for example in examples
    ]
    assert len(printed) == 2
    assert printed[0].startswith("1 run.created\n")
    assert printed[0] == printed[1]
