"""The complete command line: importing a module of commands registers them on `main`."""

from hillclimb.cli.clusters import budgets, clouds, clusters
from hillclimb.cli.datasets import datasets, exclusions, notes, pull
from hillclimb.cli.main import main
from hillclimb.cli.runs import annotate, artifacts, control, guards, runs, watch
from hillclimb.cli.runs.preflight import probe, prompts, validate
from hillclimb.cli.runs.results import (
    capsule,
    compare,
    compute,
    judge,
    patterns,
    rescore,
    signal,
    verdicts,
)
from hillclimb.cli.runs.submission import evaluate, fork, presets, submit
from hillclimb.cli.stack import demo, lifecycle
from hillclimb.cli.studies import campaigns, experiments, exports, imports, issues
from hillclimb.cli.tools import fleet, migrate, tinker

__all__ = [
    "annotate",
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
    "migrate",
    "notes",
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
