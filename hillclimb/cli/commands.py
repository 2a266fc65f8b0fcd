"""The complete command line: each command with the modules that define it.

A module is imported when its command is used: all of them take a second of processor time, which
each call of `hillclimb` would wait for.
"""

from hillclimb.process.lazy_imports import gc_paused_import

with gc_paused_import():
    import click

    from hillclimb.cli.main import main

__all__ = ["MODULES", "complete", "main"]

MODULES: dict[str, tuple[str, ...]] = {
    "accept": ("tools.accept.commands",),
    "agent-key": ("agents.keys",),
    "annotate": ("runs.annotate",),
    "audit": ("projects.audit",),
    "backup": ("stack.backups",),
    "budget": ("clusters.budgets",),
    "campaign": ("studies.campaigns",),
    "cancel": ("runs.control",),
    "capsule": ("runs.results.capsule",),
    "clouds": ("clusters.clouds",),
    "clusters": ("clusters.clusters",),
    "compare": ("runs.results.compare",),
    "compute": ("runs.results.compute",),
    "datasets": (
        "datasets.datasets",
        "datasets.exclusions",
        "datasets.notes",
        "datasets.pull",
    ),
    "delete": ("runs.control",),
    "demo": ("stack.demo",),
    "docs": ("agents.docs",),
    "doctor": ("stack.lifecycle",),
    "down": ("stack.lifecycle",),
    "env": (
        "tools.session",
        "tools.environment.commands",
    ),
    "eval": ("runs.submission.evaluate",),
    "experiment": ("studies.experiments",),
    "export": ("studies.exports",),
    "fleet": ("tools.fleet",),
    "fork": ("runs.submission.fork",),
    "guards": ("runs.guards",),
    "import": ("studies.imports",),
    "init": ("tools.first_spec",),
    "issue": ("studies.issues",),
    "judge": ("runs.results.judge",),
    "keys": ("projects.keys",),
    "limits": ("clusters.budgets",),
    "login": ("tools.session",),
    "logout": ("tools.session",),
    "logs": ("runs.artifacts",),
    "mcp": ("agents.mcp",),
    "members": ("projects.members",),
    "metrics": ("runs.results.metrics",),
    "migrate": ("tools.migrate",),
    "open": ("tools.session",),
    "orphans": ("clusters.clouds",),
    "patterns": ("runs.results.patterns",),
    "pause": ("runs.control",),
    "plan": ("runs.submission.submit",),
    "presets": ("runs.submission.presets",),
    "preview": ("runs.preflight.prompts",),
    "probe": ("runs.preflight.probe",),
    "project": ("projects.defaults",),
    "projects": ("projects.projects",),
    "prompts": ("runs.preflight.prompts",),
    "pull": ("runs.control",),
    "quotas": ("projects.projects",),
    "rescore": ("runs.results.rescore",),
    "restore": ("stack.backups",),
    "resume": ("runs.control",),
    "runs": ("runs.runs",),
    "secrets": ("projects.secrets",),
    "show": ("runs.runs",),
    "signal": ("runs.results.signal",),
    "slack": ("tools.slack",),
    "status": ("stack.lifecycle",),
    "submit": ("runs.submission.submit",),
    "timeline": ("tools.timeline",),
    "tinker": ("tools.tinker",),
    "trajectories": ("runs.artifacts",),
    "up": ("stack.lifecycle",),
    "validate": ("runs.preflight.validate",),
    "verdicts": ("runs.results.verdicts",),
    "watch": ("runs.watch",),
    "webhooks": ("projects.webhooks",),
    "whoami": ("projects.keys",),
}
"""Modules below `hillclimb.cli` by the command that they define, or add commands to."""

SECTIONS = {
    "stack": "The service on this machine",
    "runs": "Runs",
    "datasets": "Datasets",
    "studies": "Experiments, campaigns, issues, exports",
    "clusters": "Rented machines and what they cost",
    "projects": "Project and access",
    "tools": "Tools",
    "agents": "Coding agents",
}
"""Titles of the help's sections, in order, by the folder of the commands' first modules."""

main.sections = SECTIONS
main.modules = {
    name: tuple(f"hillclimb.cli.{module}" for module in modules)
    for name, modules in MODULES.items()
}


def complete() -> click.Group:
    """Import every command and return the root command with all of them."""
    main.load_all()
    return main
