"""Fixtures shared by all tests; `tests/trainer` runs in an environment without database drivers."""

import gc
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

if "SLIPCOVER_ENABLED" in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
    import slipcover.pytest_plugin

    # It takes its probes out of code once one was hit so often, and looks through all modules to do
    # so. The option for it, 50 where it is absent, does not reach xdist's workers.
    slipcover.pytest_plugin._slipcover_instance.d_miss_threshold = 30_000

HAS_DATABASES = importlib.util.find_spec("psycopg") is not None
pytest_plugins = ["tests.fixtures.servers", "tests.fixtures.migrated"] if HAS_DATABASES else []

# No deadline per input: what is slow here is the machine, and claims about time measure it.
settings.register_profile("quick", max_examples=100, deadline=None)
settings.register_profile("fuzz", max_examples=3000, deadline=None)
settings.load_profile("quick")


ROOT = Path(__file__).parent
if not os.environ.get("HILLCLIMB_E2E"):
    # All is plain HTTP on loopback, but every client reads whom it would trust: 1 ms for this one
    # (openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null), 30 ms for the world's 117.
    os.environ["SSL_CERT_FILE"] = str(ROOT / "fixtures/no_authority.pem")
LONGEST = (
    "conformance/",
    "hillclimb/cli/first_hour/test_readme.py",
    "hillclimb/cli/first_hour/test_old_workflows.py",
    "hillclimb/cli/tools/test_environment.py",
    "hillclimb/stack/",
    "worker/",
    "peers/",
    "hillclimb/cli/",
)
"""Of the control plane: they begin first, so that the processes (`make test`, `make test-long`) end
together."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while modules are imported, nor ever look again at what they made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Collect no garbage while slipcover parses the modules that no test imported."""
    if "SLIPCOVER_ENABLED" in os.environ:
        gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and put the reasons of slow tests into the record."""
    items.sort(key=_turn)
    for item in items:
        if marker := item.get_closest_marker("invariant"):
            item.user_properties.append(("invariant", marker.args[0]))


def _turn(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT).as_posix()
    return next((turn for turn, name in enumerate(LONGEST) if path.startswith(name)), len(LONGEST))
