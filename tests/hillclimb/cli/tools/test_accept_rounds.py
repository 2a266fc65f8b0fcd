"""The ladders `gpu` and `cluster` over the real application, which is told how their run went."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from hillclimb.cli.tools.accept.ladders import climb_rounds
from hillclimb.cli.tools.accept.progress import Progress
from hillclimb.cli.tools.accept.rounds import CANARY, RoundsLadder, tiny_spec
from hillclimb.client.client import Client
from hillclimb.client.spec_file import with_assignments
from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.targets import FACTS
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.runs import RunPayload
from hillclimb.spec.rules.experimental_features import COMMANDS, experimental_features
from hillclimb.spec.run import RunSpec
from hillclimb.stack.state.connection import Connection
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import VERSIONS, Story

GPU = {"gpu": "NVIDIA H100 80GB HBM3", "cuda": "12.8", "driver": "550.54.15", "hillclimb": "0.1.0"}
GOOD = {"policy/num_updates": 2.0, CANARY: 3e-4}


@dataclass
class Course:
    """How the run goes."""

    versions: Mapping[str, str] = field(default_factory=lambda: VERSIONS | GPU)
    metrics: Mapping[str, float] = field(default_factory=lambda: GOOD)
    saves: bool = True
    end: ReasonCode = ReasonCode.COMPLETED


class ToldClient(Client):
    """A client of the real service; each run that it submits is carried out by the story."""

    def __init__(self, connection: Connection, story: Story, course: Course) -> None:
        super().__init__(connection)
        self.story, self.course = story, course

    def submit(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> RunPayload:
        run = super().submit(spec, idempotency_key=idempotency_key)
        story, course = self.story, self.course
        story.launch(run.id)
        started = story.started(run.id).model_copy(update={"versions": dict(course.versions)})
        story.push(run.id, started)
        for step in (1, 2):
            told = story.step(run.id, step, {"booking": 0.5}, tasks=1)
            story.push(run.id, told.model_copy(update={"metrics": dict(course.metrics)}))
        if course.saves:
            story.push(run.id, story.checkpoint(run.id, 2))
        story.finish(run.id, 2, course.end, message="as the test says")
        return run


@pytest.fixture
def course() -> Course:
    return Course()


@pytest.fixture
def client(served: Served, story: Story, course: Course) -> Iterator[ToldClient]:
    with ToldClient(Connection(url=served.url, api_key=served.key), story, course) as client:
        yield client


def ladder_of(client: Client) -> RoundsLadder:
    return RoundsLadder(client, tiny_spec("accept", "builtin:tiny-qwen3-a"), "gpu")


def climbed(client: Client) -> tuple[CheckObservation, ...]:
    return asyncio.run(climb(ladder_of(client), Redactor(())))


def test_two_rounds_on_a_gpu_are_evidence_of_its_kind(client: ToldClient) -> None:
    result = climb_rounds(client, ladder_of(client), "gpu", Progress(is_silent=True))
    assert [each.name for each in result.observations if each.passed] == list(FACTS["gpu"].checks)
    stored = result.acceptance
    assert stored is not None
    assert (stored.subject, stored.paths) == (GPU["gpu"], ["gpu"])
    assert stored.versions["driver"] == "550.54.15"
    spec = tiny_spec("after", "builtin:tiny-qwen3-a") | {"experimental": False}
    accepted = client.plan(spec).spec["accepted"]
    assert [each["path"] for each in accepted] == ["gpu"]


@pytest.mark.parametrize(
    ("change", "failed", "remedy"),
    [
        ({"versions": VERSIONS}, "machines", "docs/own-gpu.md"),
        ({"metrics": {"policy/num_updates": 0.0, CANARY: 0.0}}, "rounds", "--model"),
        ({"end": ReasonCode.SPEC_REJECTED}, "rounds", "docs/runbook.md"),
        ({"saves": False}, "saved", "docs/runbook.md"),
        ({"metrics": {"policy/num_updates": 2.0}}, "canary", "docs/runbook.md"),
    ],
)
def test_each_thing_that_a_run_lacks_ends_the_ladder(
    client: ToldClient, change: dict[str, Any], failed: str, remedy: str
) -> None:
    for name, value in change.items():
        setattr(client.course, name, value)
    *_, last = climbed(client)
    assert (last.name, last.passed) == (failed, False)
    assert remedy in last.remedy
    assert client.acceptance.list().data == []


@pytest.mark.parametrize(("path", "command"), COMMANDS.items())
def test_the_command_that_a_refusal_names_makes_a_spec_of_that_path(
    path: str, command: str
) -> None:
    target, *options = shlex.split(command)
    assert (target, set(options[::2])) == ("gpu", {"--set"})
    tiny = tiny_spec("accept", "builtin:tiny-qwen3-a")
    spec = RunSpec.model_validate(with_assignments(tiny, tuple(options[1::2])))
    assert path in {feature.path for feature in experimental_features(spec)}
