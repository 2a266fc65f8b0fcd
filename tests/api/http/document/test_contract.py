"""Requests that the OpenAPI document allows, and others, are answered as the document says.

schemathesis makes them from the document alone. It stands at the other end of the wire, in
`.venv-peers`; `schemathesis.toml` has its settings.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.tables.access.roles import Scope
from hillclimb.blobs.disk import DiskStore
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import PROJECT, Story
from tests.api.fixtures.story_fixtures import blobs, story, story_url
from tests.api.http.access.conftest import make_key
from tests.api.http.document.stored import StoredProject, keep_the_key, store_project

__all__ = ["blobs", "story", "story_url"]

pytestmark = pytest.mark.invariant("the API answers as its document says")

ROOT = Path(__file__).resolve().parents[4]
SCHEMATHESIS = ROOT / ".venv-peers" / "bin" / "schemathesis"
SETTINGS = Path(__file__).with_name("schemathesis.toml")
METRICS_TOKEN = "metrics-" + "m" * 40
EXAMPLE_RUN = "run_06dzk3m8v5q2w9x4t7r1c0n6ab"
COMPARED = frozenset({"a", "b"})
"""Parameters of the query that name evaluations."""
MAX_ALIKE = int(os.environ.get("HILLCLIMB_FUZZ_ALIKE", "1"))
"""Cases of the phase `coverage` that differ only in the place in a body; 0: all 16,000 cases."""
MADE = (
    "^/v1/(agent-keys|campaigns|datasets|experiments|issues|keys|members|projects|secrets|webhooks)"
)
"""Paths of what people make, change and delete: the answer to one request names it in another."""
UNANSWERED = {
    "POST /v1/acceptance/{target}/checks": "the service has neither a bucket nor a bot",
    "GET /v1/agent-keys/self": "the key is no agent's",
    "POST /v1/attempts/claim": "it requires the code of a launch",
    "POST /v1/imports/capsule": "random bytes are no capsule",
    "POST /v1/imports/skyrl": "random bytes are no archive",
    "POST /v1/slack/commands": "Slack has not signed it",
    "POST /v1/slack/events": "Slack has not signed it",
    "POST /v1/slack/interactions": "Slack has not signed it",
}
"""Operations of which no example is carried out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A service with data, and what schemathesis has to know of it."""

    served: Served
    stored: StoredProject
    runner_key: str
    folder: Path

    def check(self, phase: str, *options: str, max_alike: int = 0) -> dict[str, Any]:
        """Let schemathesis test the document in a phase, and return its report."""
        document, report = self.folder / "openapi.json", self.folder / "report.json"
        document.write_text(json.dumps(with_examples(self.document(), self.stored)))
        done = subprocess.run(
            [
                *(str(SCHEMATHESIS), "--config-file", str(SETTINGS), "run", str(document)),
                *("--url", self.served.url, "--no-color", "--phases", phase, *options),
            ],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(Path(__file__).parent),
                "CONTRACT_REPORT": str(report),
                "CONTRACT_MAX_ALIKE": str(max_alike),
                "CONTRACT_KEY": self.served.key,
                "CONTRACT_RUNNER_KEY": self.runner_key,
                "CONTRACT_ATTEMPT_TOKEN": self.stored.attempt_token,
                "CONTRACT_NODE_TOKEN": self.stored.node_token,
                "CONTRACT_ENDED_RUN": str(self.stored.names["run_id"][0]),
                "CONTRACT_METRICS_TOKEN": METRICS_TOKEN,
            },
            capture_output=True,
            text=True,
            timeout=3000,
            check=False,
        )
        (self.folder / "output.txt").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    def document(self) -> dict[str, Any]:
        with self.served.client() as client:
            document: dict[str, Any] = client.get("/openapi.json", timeout=120.0).json()
        return document


def with_examples(document: dict[str, Any], stored: StoredProject) -> dict[str, Any]:
    """Let the examples of paths, and the runs in those of bodies, name what is stored."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                name, deletes = parameter["name"], method == "delete"
                example = stored.example(path, name, deletes=deletes)
                is_name = parameter["in"] == "path" or name in COMPARED
                if is_name and example is not None:
                    parameter["schema"].pop("examples", None)
                    parameter["example"] = example
    text = json.dumps(document).replace(EXAMPLE_RUN, str(stored.names["run_id"][0]))
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def contract(story: Story, story_url: str, blobs: DiskStore, tmp_path: Path) -> Iterator[Contract]:
    assert SCHEMATHESIS.exists(), "run `make .venv-peers/.ready`"
    settings = {
        "requests_per_minute": 1_000_000,
        "wrong_keys_per_minute": 1_000_000,
        "metrics_token": METRICS_TOKEN,
    }
    with serve(story_url, story.database, tmp_path / "blobs", **settings) as served:
        keep_the_key(story, served.key)
        with served.client() as client:
            client.timeout = httpx.Timeout(120.0)
            stored = store_project(story, blobs, client)
        runner_key = make_key(story.database, [Scope.RUNNER], project_id=PROJECT)
        yield Contract(served=served, stored=stored, runner_key=runner_key, folder=tmp_path)


def test_the_examples_of_every_operation_are_answered_as_the_document_says(
    contract: Contract,
) -> None:
    report = contract.check("examples")
    operations = report["operations"]
    assert operations["tested"] == operations["total"] > 100
    rates = report["valid_rates"]
    answered = {name for name, by_phase in rates.items() if by_phase["examples"]["accepted"]}
    assert sorted(set(rates) - answered - set(UNANSWERED)) == []


@pytest.mark.long
def test_boundary_values_wrong_values_and_other_methods_are_answered_as_the_document_says(
    contract: Contract,
) -> None:
    report = contract.check("coverage", max_alike=MAX_ALIKE)
    operations = report["operations"]
    assert operations["tested"] == operations["total"] > 100
    assert report["test_cases"]["generated"] > 10 * operations["total"]


@pytest.mark.long
def test_random_requests_are_answered_as_the_document_says(contract: Contract) -> None:
    report = contract.check("fuzzing", "--max-examples", "5")
    operations = report["operations"]
    assert operations["tested"] == operations["total"] > 100
    assert report["test_cases"]["generated"] > 5 * operations["total"]


@pytest.mark.long
def test_requests_that_follow_one_another_are_answered_as_the_document_says(
    contract: Contract,
) -> None:
    report = contract.check("stateful", "--max-examples", "60", "--include-path-regex", MADE)
    assert report["test_cases"]["generated"] > 100
