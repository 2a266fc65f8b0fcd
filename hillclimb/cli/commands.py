"""The complete command line: importing a module of commands registers them on `main`."""

from hillclimb.cli.clusters import budgets, clouds, clusters
from hillclimb.cli.datasets import datasets, exclusions, pull
from hillclimb.cli.main import main
from hillclimb.cli.runs import artifacts, control, guards, runs, watch
from hillclimb.cli.runs.preflight import probe, prompts, validate
from hillclimb.cli.runs.results import (
    capsule,
    compare,
    compute,
    judge,
    metrics,
    patterns,
    rescore,
    signal,
    verdicts,
)
from hillclimb.cli.runs.submission import evaluate, fork, presets, submit
from hillclimb.cli.shell import first_spec, session
from hillclimb.cli.stack import demo, lifecycle
from hillclimb.cli.studies import campaigns, experiments, exports, imports, issues
from hillclimb.cli.tools import fleet, tinker

__all__ = [
    "artifacts",
    "budgets",
    "campaigns",
    "capsule",
    "clouds",
    "clusters",
    "compare",
    "compute",
    "control",
    "datasets",
    "demo",
    "evaluate",
    "exclusions",
    "experiments",
    "fleet",
    "fork",
    "exports",
    "issues",
    "guards",
    "imports",
    "judge",
    "lifecycle",
    "main",
    "metrics",
    "first_spec",
    "session",
    "patterns",
    "presets",
    "probe",
    "prompts",
    "pull",
    "rescore",
    "runs",
    "signal",
    "submit",
    "tinker",
    "validate",
    "verdicts",
    "watch",
]
