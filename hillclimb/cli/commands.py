"""The whole command line: importing a file of verbs registers them on `main`."""

from hillclimb.cli import control, demo, evaluate, fleet, runs, stack, submit, watch
from hillclimb.cli.main import main

__all__ = ["control", "demo", "evaluate", "fleet", "main", "runs", "stack", "submit", "watch"]
