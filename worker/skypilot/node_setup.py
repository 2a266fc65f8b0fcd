"""Shell scripts of a rented node: its set-up, and then its job."""

from __future__ import annotations

import shlex

from hillclimb.spec.backend.skypilot import TrainerInstall

HOME = "~/hillclimb"
"""The node's folder for our files: wheel, locks, virtual environment, run directory."""
LOCK, TORCH, GPU_LOCK = (f"{HOME}/{name}.txt" for name in ("trainer", "torch", "trainer-gpu"))
"""Locks of packages: they differ in the builds of vLLM and torch, and in what these need."""
VENV = f"{HOME}/venv"
SITE = f"{HOME}/site"
"""Our wheel beside an environment that we must not change."""
UV = "~/.local/bin/uv"
"""SkyPilot 0.14.1 installs it on every machine for its own runtime (`SKY_UV_INSTALL_DIR`)."""
CREDENTIALS = {
    "AWS": "~/.aws",
    "Azure": "~/.azure",
    "GCP": "~/.config/gcloud",
    "Kubernetes": "~/.kube",
    "Lambda": "~/.lambda_cloud",
    "Nebius": "~/.nebius",
    "PrimeIntellect": "~/.prime",
    "RunPod": "~/.runpod",
    "Vast": "~/.config/vastai",
}
"""Folders of credentials that SkyPilot 0.14.1 copies from the API server's home onto nodes, by its
name of the cloud: all that `hillclimb.stack.servers.sky` links into that home."""
SECRETS_DIR = f"{HOME}/secrets"
"""The launch's secrets: a file for each attempt, because clusters may share a home."""
SETUP_LOCK = f"{HOME}/setup.lock"
_PIP = "--quiet --disable-pip-version-check"
_IS_USABLE = "import ensurepip, sys, venv; sys.exit(not (3, 11, 2) <= sys.version_info < (3, 13))"
_GPUS = "${SKYPILOT_SETUP_NUM_GPUS_PER_NODE:-0}"
"""SkyPilot's variable during set-up; during the job it has another name."""


def setup_script(install: TrainerInstall, wheel: str) -> str:
    """Return the set-up script of every node, which installs the trainer's environment.

    Nodes that share a home, as Slurm's do, run it one after the other (`flock`): parallel pips
    would delete each other's files.
    """
    install_steps = _install(install, f"{HOME}/{wheel}")
    return "\n".join(
        (
            "set -e",
            *_restrict_access(),
            *_remove_credentials(),
            "(",
            "flock 9",
            *install_steps,
            f") 9>{SETUP_LOCK}",
        )
    )


def run_script(install: TrainerInstall) -> str:
    """Return the job script of every node."""
    path = "" if install.type == "wheel" else f"PYTHONPATH={SITE} "
    return f"cd {HOME} && {path}exec {python_of(install)} -m trainer.node"


def python_of(install: TrainerInstall) -> str:
    """Return the trainer's Python interpreter."""
    if install.type == "prebuilt":
        return shlex.quote(install.python or "")
    return f"{VENV}/bin/python" if install.type == "wheel" else "python3"


def _restrict_access() -> tuple[str, ...]:
    """Deny other accounts of the machine access to the launch's secrets."""
    return (f"mkdir -p {SECRETS_DIR}", f"chmod -R go= {SECRETS_DIR}")


def _remove_credentials() -> tuple[str, ...]:
    """Delete other clouds' credentials: SkyPilot copies all of them onto every machine.

    A machine keeps those of its own cloud, which SkyPilot's autodown needs.
    """
    return tuple(
        f"""case "$SKYPILOT_CLUSTER_INFO" in *'"cloud": "{cloud}"'*) ;; *) rm -rf {place} ;; esac"""
        for cloud, place in CREDENTIALS.items()
    )


def _install(install: TrainerInstall, target: str) -> tuple[str, ...]:
    if install.type != "wheel":
        pip = f"{python_of(install)} -m pip install {_PIP}"
        return (f"{pip} --no-deps --upgrade --target {SITE} {target}",)
    pip = f"{VENV}/bin/python -m pip install {_PIP}"
    return (
        *_python(),
        # The CPU lock has vLLM's CPU build, which would leave a machine's GPUs idle.
        f"if [ {_GPUS} != 0 ]; then",
        f"  {pip} --require-hashes --no-deps -r {GPU_LOCK}",
        "else",
        f"  {pip} --require-hashes --no-deps -r {LOCK}",
        # With what it needs beside the locked: the index's build is CUDA's on a CPU too.
        f"  {pip} --no-warn-conflicts -r {TORCH}",
        "fi",
        f"{pip} --no-deps --force-reinstall {target}",
    )


def _python() -> tuple[str, ...]:
    """Create the environment with Python 3.11 or 3.12: cloud images have 3.10 as `python3`."""
    return (
        f"is_whole() {{ {VENV}/bin/python -m pip --version >/dev/null 2>&1; }}",
        # An interrupted creation leaves a Python without pip.
        f"is_whole || rm -rf {VENV}",
        "for each in python3.12 python3.11 python3; do",
        "  if is_whole; then break; fi",
        f"  if $each -c '{_IS_USABLE}' 2>/dev/null; then $each -m venv {VENV}; fi",
        "done",
        f"is_whole || {UV} venv --quiet --seed --python 3.11 {VENV}",
    )
