"""Files that unpack to far more than they are cost the process no more than their limit."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.prompts import read_prompts
from api.results.artifacts.rollouts.files import TrajectoryFiles
from api.results.artifacts.timeline.rollouts import read_times
from api.results.artifacts.trajectories import read_trajectory
from api.results.errors import NoSuchValidation
from api.results.preflight.validation import read_rows
from api.results.rescoring.files import read_lines
from api.tables import OutcomeRecord
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import run_key

BOMB = gzip.compress(bytes(16 << 20)) * 64
"""A megabyte that unpacks to a gigabyte of one line."""
MAX_GROWTH_MB = 300
OUTCOME = OutcomeRecord(
    run_id="run_1",
    attempt=1,
    rollout_id="rollout-1",
    trajectory="trajectories/step-000001-train-0.jsonl.gz",
    trajectory_line=0,
)


def memory_mb(name: str) -> float:
    """Return a figure of this process's memory, such as `VmHWM`, its peak."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    made = DiskStore(tmp_path)
    for name in ("attempt-1/trajectories/step-000001-train-0.jsonl.gz", "prompts", "rows"):
        made.put(run_key("run_1", name), BOMB)
    return made


def trajectory(store: DiskStore) -> None:
    with pytest.raises(ArtifactNotFound, match="rollout-1 has a line of more than 64 MiB"):
        read_trajectory(store, OUTCOME)


def prompts(store: DiskStore) -> None:
    with pytest.raises(ArtifactNotFound, match="run run_1 has a line of more than 64 MiB"):
        read_prompts(store, "run_1", "prompts")


def times(store: DiskStore) -> None:
    assert list(read_times(store, [run_key("run_1", "prompts")])) == []


def export(store: DiskStore) -> None:
    with TrajectoryFiles(store, "run_1") as files:
        assert files.line(OUTCOME) is None


def rescored(store: DiskStore) -> None:
    path = store.local_path(run_key("run_1", "prompts"))
    assert path is not None
    assert read_lines(path, {0}) == {}


def validation(store: DiskStore) -> None:
    with pytest.raises(NoSuchValidation, match="MB at most when decompressed"):
        list(read_rows(store, run_key("run_1", "rows"), verdict=None, env=None))


@pytest.mark.parametrize("read", [trajectory, prompts, times, export, rescored, validation])
def test_a_bomb_is_refused_with_a_sentence_and_little_memory(
    store: DiskStore, read: Callable[[DiskStore], None]
) -> None:
    """A megabyte took 17.7 s and left the API with 2.3 GB."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmHWM")
    read(store)
    assert memory_mb("VmHWM") - before < MAX_GROWTH_MB
