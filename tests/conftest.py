"""Fixtures shared by all tests; `tests/trainer` runs in an environment without database drivers."""

import importlib.util

pytest_plugins = ["tests.servers"] if importlib.util.find_spec("psycopg") else []
