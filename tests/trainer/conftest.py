"""What holds for all tests of the trainer: one Ray token, no variables left by other modules, and
which of two processes gets which files.

Ray reads its environment once, when it is first imported, and vLLM's tests import it long before
those that start a cluster: hence the token is set here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = "0123456789abcdef" * 4


FORKED = (
    "jobs/train/test_bit_exact_resume.py",
    "envs/fleet/instances/test_lifetime.py",
    "envs/fleet/instances/test_kills.py",
    "learners/ranks/test_two_ranks.py",
    "learners/model/test_sharding.py",
    "benchmarks/test_gpu_checklist.py",
    "jobs/test_process.py",
    "attempt/test_watchdog.py",
)
"""They start processes as forks of a template (`tests.trainer.fixtures.forked`)."""
VLLM = ("engines/test_choose.py", "engines/vllm/test_template.py")
"""They let a template go, or see that it is let go: what comes later has one to the end."""
LONGEST = (
    "workers/tinker/",
    "tinker_server/",
    *VLLM,
    "engines/",
    *FORKED,
    "workers/ray/",
    "jobs/train/wiring/test_wiring_dynamic.py",
    "learners/",
)
"""What takes longest, and so begins first: nothing is left to wait for at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=_turn)


class Grouped(LoadScopeScheduling):
    """Keeps the tests of a file in one process, and all those with a template in one process too.

    There is one template in a process: what imported vLLM (`trainer.engines.vllm.template`) does
    for the others as well, and not the other way round. Nor does another process import vLLM.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].rpartition("tests/trainer/")[2]
        with_vllm = file.startswith("engines/vllm/") or file == "engines/test_choose.py"
        return "template" if with_vllm or file in FORKED else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Grouped:
    """Called by pytest-xdist (`-n`)."""
    return Grouped(config, log)


def _turn(item: pytest.Item) -> int:
    path = item.path.as_posix().rpartition("tests/trainer/")[2]
    return next((turn for turn, name in enumerate(LONGEST) if path.startswith(name)), len(LONGEST))


@pytest.fixture(autouse=True, scope="module")
def _variables_end_with_their_module() -> Iterator[None]:
    """An engine in this process sets some (`HF_HUB_OFFLINE`) that others must not see."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
