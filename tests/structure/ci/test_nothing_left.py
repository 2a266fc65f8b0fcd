"""What CI looks for after the demo is found where there is any."""

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nothing_left", ROOT / ".ci/nothing_left.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def sleeping(title: str, place: Path, **environ: str) -> Iterator[int]:
    """A process under a title, in a directory, until the end of the block."""
    command = ["bash", "-c", f"exec -a '{title}' sleep 60"]
    with subprocess.Popen(command, cwd=place, env=os.environ | environ) as process:
        wait = ["bash", "-c", f"until grep -q '^{title}' /proc/{process.pid}/cmdline; do :; done"]
        subprocess.run(wait, check=True, timeout=10)
        yield process.pid
        process.kill()


def test_a_worker_with_rays_title_is_found_by_where_it_works(
    script: ModuleType, tmp_path: Path
) -> None:
    attempt = tmp_path / ".hillclimb" / "runs"
    attempt.mkdir(parents=True)
    with sleeping("ray::EngineActor", attempt) as worker, sleeping("editor", attempt) as other:
        found = {process.pid for process in script.processes_of(tmp_path)}
    assert worker in found
    assert other not in found


def test_a_process_is_found_by_the_stacks_mark(script: ModuleType, tmp_path: Path) -> None:
    place = str(tmp_path / ".hillclimb")
    with sleeping("ray::RolloutWorker", Path("/"), HILLCLIMB_STACK_OWNER=place) as worker:
        assert [process.pid for process in script.processes_of(tmp_path)] == [worker]
        assert script.processes_of(tmp_path / "other") == []


def test_folders_count_when_their_process_is_dead(script: ModuleType, tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    for kind in ("ray", "vllm", "weights", "test"):
        for pid in (ended.pid, os.getpid()):
            (tmp_path / f"hillclimb-{kind}-{pid}-x").mkdir()
    found = [path.name for path in script.folders_of_the_dead((tmp_path,))]
    assert found == [f"hillclimb-{kind}-{ended.pid}-x" for kind in ("ray", "vllm", "weights")]
