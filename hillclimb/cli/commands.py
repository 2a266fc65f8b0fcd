"""The complete command line: importing a module of commands registers them on `main`."""

from hillclimb.cli.agents import docs, mcp
from hillclimb.cli.agents import keys as agent_keys
from hillclimb.cli.clusters import budgets, clouds, clusters
from hillclimb.cli.datasets import datasets, exclusions, notes, pull
from hillclimb.cli.main import main
from hillclimb.cli.projects import audit, defaults, keys, members, projects, secrets, webhooks
from hillclimb.cli.runs import annotate, artifacts, control, guards, runs, watch
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
from hillclimb.cli.stack import backups, demo, lifecycle
from hillclimb.cli.studies import campaigns, experiments, exports, imports, issues
from hillclimb.cli.tools import first_spec, fleet, migrate, session, slack, timeline, tinker
from hillclimb.cli.tools.accept import commands as accept
from hillclimb.cli.tools.environment import commands as environment

__all__ = [
    "accept",
    "agent_keys",
    "annotate",
    "artifacts",
    "audit",
    "backups",
    "budgets",
    "campaigns",
    "capsule",
    "clouds",
    "clusters",
    "compare",
    "compute",
    "control",
    "datasets",
    "defaults",
    "demo",
    "docs",
    "environment",
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
    "keys",
    "lifecycle",
    "main",
    "members",
    "mcp",
    "migrate",
    "notes",
    "metrics",
    "first_spec",
    "session",
    "patterns",
    "presets",
    "probe",
    "projects",
    "prompts",
    "pull",
    "rescore",
    "runs",
    "secrets",
    "signal",
    "slack",
    "submit",
    "timeline",
    "tinker",
    "validate",
    "verdicts",
    "watch",
    "webhooks",
]
