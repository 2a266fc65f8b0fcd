"""Scripts of users of the SDK, unmodified: they know the server's address and key, and no more."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer.fixtures.tiny_model import write_tiny_model
from tests.trainer.tinker_server.scripts import grpo, supervised
from tests.trainer.workers.tinker.server.local import KEY, tinker_server

SCRIPTS = Path(grpo.__file__).parent


@contextmanager
def serving(root: Path, *, max_models: int) -> Iterator[str]:
    model = write_tiny_model(root / "model", positions=128)
    with tinker_server(model, root / "state", model_name=str(model), max_models=max_models) as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # The clients of a test live on until its process ends.
    with serving(tmp_path_factory.mktemp("scripts"), max_models=8) as url:
        yield url


@pytest.fixture
def _environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", server)
    monkeypatch.setenv("TINKER_API_KEY", KEY)


@pytest.mark.usefixtures("_environment")
def test_a_supervised_script_learns_resumes_and_samples() -> None:
    came = supervised.main()
    assert came["last"] < 0.7 * came["first"]
    assert came["resumed"] == pytest.approx(came["last"], abs=1e-3)
    assert isinstance(came["text"], str)


@pytest.mark.usefixtures("_environment")
async def test_two_grpo_scripts_at_once_both_learn() -> None:
    """With a reference sampler that is older than the samplers of all later steps."""
    for each in await asyncio.gather(grpo.main(8, seed=1), grpo.main(8, seed=2)):
        assert statistics.mean(each["rewards"][-2:]) > statistics.mean(each["rewards"][:2])
        assert each["distances"][0] == pytest.approx(0.0, abs=1e-4)
        assert each["distances"][-1] > 0.01


def start(url: str, script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPTS / script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TINKER_BASE_URL": url, "TINKER_API_KEY": KEY, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.long
@pytest.mark.invariant("SDK scripts in processes of their own share a server, beside a killed one")
def test_scripts_finish_beside_others_and_one_after_another_on_a_server_with_few_places(
    tmp_path: Path,
) -> None:
    """The places of a script that was killed, or has ended, are free before long."""
    with serving(tmp_path, max_models=3) as url:
        killed = start(url, "grpo.py", "10000")
        others = [start(url, "grpo.py", "6") for _ in range(2)]
        try:
            ends = [ast.literal_eval(each.communicate(timeout=500)[0]) for each in others]
            assert all(len(each["rewards"]) == 6 for each in ends)
            assert killed.poll() is None
            killed.send_signal(signal.SIGKILL)
            for _ in range(3):
                last = start(url, "supervised.py")
                others.append(last)
                came = ast.literal_eval(last.communicate(timeout=300)[0])
                assert came["last"] < 0.7 * came["first"]
        finally:
            for each in (killed, *others):
                each.kill()
                each.communicate()
