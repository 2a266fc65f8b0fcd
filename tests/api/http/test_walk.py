"""The way of a spec through the service: down the floors, and hardly ever back up."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import spec
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
ROOT = Path(__file__).resolve().parents[3]
MAX_CLIMBS = 2
"""A callback that a lower floor calls is a climb: the reader has to go back up."""


def floors() -> dict[str, int]:
    """Return the number of each floor, from the top down: the layers of the import contracts."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = {
        each["containers"][0]: each["layers"]
        for each in contracts["contracts"]
        if "containers" in each
    }
    order = [(name, layer) for name in ("api", "hillclimb") for layer in layers[name]]
    return {
        f"{name}.{module.strip()}": number
        for number, (name, layer) in enumerate(order)
        for module in layer.split("|")
    }


class Walk:
    """Counts calls between floors; a profile function for every thread that starts meanwhile."""

    def __init__(self) -> None:
        self.floors = floors()
        self.climbs: list[str] = []
        self.stays: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (callee := self._floor(frame)) is None:
            return
        caller: FrameType | None = frame.f_back
        while caller is not None and self._floor(caller) is None:
            caller = caller.f_back
        self.stays.append(frame.f_globals["__name__"])
        if caller is not None and callee < (self._floor(caller) or 0):
            names = [
                f"{each.f_globals['__name__']}.{each.f_code.co_name}" for each in (caller, frame)
            ]
            self.climbs.append(" calls ".join(names))

    def _floor(self, frame: FrameType) -> int | None:
        parts = frame.f_globals.get("__name__", "").split(".")
        return self.floors.get(".".join(parts[:2]))


@pytest.fixture
def walk() -> Iterator[Walk]:
    """Follows the threads that start from here on: those of the server."""
    with _profiled(Walk()) as found:
        yield found


@contextmanager
def _profiled(walk: Walk) -> Iterator[Walk]:
    threading.setprofile(walk)
    try:
        yield walk
    finally:
        threading.setprofile(None)


def test_the_post_of_a_spec_climbs_back_at_most_twice(walk: Walk, served: Served) -> None:
    walk.climbs.clear()
    walk.stays.clear()
    with served.client() as client:
        answer = client.post("/v1/runs", json=spec().model_dump(mode="json"))
    assert answer.status_code == 201, answer.text
    assert "api.scheduling.attempts" in walk.stays or "api.admission.submit" in walk.stays
    assert len(set(walk.climbs)) <= MAX_CLIMBS, sorted(set(walk.climbs))
