"""The whole command line: importing a file of verbs registers them on `main`."""

from hillclimb.cli import (
    clusters,
    control,
    datasets,
    demo,
    evaluate,
    exclusions,
    fleet,
    presets,
    probe,
    prompts,
    pull_dataset,
    runs,
    stack,
    submit,
    tinker,
    validate,
    watch,
)
from hillclimb.cli.main import main

__all__ = [
    "clusters",
    "control",
    "datasets",
    "demo",
    "evaluate",
    "exclusions",
    "fleet",
    "main",
    "presets",
    "probe",
    "prompts",
    "pull_dataset",
    "runs",
    "stack",
    "submit",
    "tinker",
    "validate",
    "watch",
]
