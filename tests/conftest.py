"""Fixtures shared by all tests; `tests/trainer` runs in an environment without database drivers."""

import importlib.util

from hypothesis import settings

pytest_plugins = ["tests.servers"] if importlib.util.find_spec("psycopg") else []

# No deadline per input: what is slow here is the machine, and claims about time measure it.
settings.register_profile("quick", max_examples=100, deadline=None)
settings.register_profile("fuzz", max_examples=3000, deadline=None)
settings.load_profile("quick")
