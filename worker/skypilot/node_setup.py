"""What a rented node runs: its set-up, by a shell, and then its job."""

from __future__ import annotations

import shlex

from trainer.contract.clusters.spec import TrainerInstall

HOME = "~/hillclimb"
"""Where a node keeps what is ours: the wheel, the lock, the environment, the run directory."""
LOCK, GPU_LOCK = f"{HOME}/trainer.txt", f"{HOME}/trainer-gpu.txt"
"""Of packages: they differ in the build of vLLM and in what only one of its builds needs."""
VENV = f"{HOME}/venv"
SITE = f"{HOME}/site"
"""The wheel beside an environment that is not ours to change."""
UV = "~/.local/bin/uv"
"""SkyPilot 0.14.1 puts it on every machine, for its own runtime (`SKY_UV_INSTALL_DIR`)."""
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
"""Where SkyPilot 0.14.1 puts what it copies from the API server's home, by the cloud's name there:
of everything that `hillclimb.stack.sky` links into it."""
GIVEN = f"{HOME}/given"
"""Where a launch brings what is secret: a file for each attempt, as clusters may share a home."""
SETTING_UP = f"{HOME}/setup.lock"
_PIP = "--quiet --disable-pip-version-check"
_IS_OURS = "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 13))"
_GPUS = "${SKYPILOT_SETUP_NUM_GPUS_PER_NODE:-0}"
"""As SkyPilot tells a set-up; the job's own variable has another name."""


def setup_script(install: TrainerInstall, wheel: str) -> str:
    """Return what every node does before the job: the data plane's environment.

    One after the other where they share their home, as a Slurm's nodes do: pip would pull files
    from under itself.
    """
    installed = _installed(install, f"{HOME}/{wheel}")
    return "\n".join(
        ("set -e", *_private(), *_disarmed(), "(", "flock 9", *installed, f") 9>{SETTING_UP}")
    )


def run_script(install: TrainerInstall) -> str:
    """Return the job of every node."""
    path = "" if install.type == "wheel" else f"PYTHONPATH={SITE} "
    return f"cd {HOME} && {path}exec {python_of(install)} -m trainer.node"


def python_of(install: TrainerInstall) -> str:
    """Return the interpreter that the trainer runs on."""
    if install.type == "prebuilt":
        return shlex.quote(install.python or "")
    return f"{VENV}/bin/python" if install.type == "wheel" else "python3"


def _private() -> tuple[str, ...]:
    """Keep other accounts of the machine away from what the launch has brought."""
    return (f"mkdir -p {GIVEN}", f"chmod -R go= {GIVEN}")


def _disarmed() -> tuple[str, ...]:
    """Take away what opens other clouds: SkyPilot copies all credentials onto every machine.

    A machine keeps those of its own cloud, by which SkyPilot's autodown ends it.
    """
    return tuple(
        f"""case "$SKYPILOT_CLUSTER_INFO" in *'"cloud": "{cloud}"'*) ;; *) rm -rf {place} ;; esac"""
        for cloud, place in CREDENTIALS.items()
    )


def _installed(install: TrainerInstall, target: str) -> tuple[str, ...]:
    if install.type != "wheel":
        pip = f"{python_of(install)} -m pip install {_PIP}"
        return (f"{pip} --no-deps --upgrade --target {SITE} {target}",)
    pip = f"{VENV}/bin/python -m pip install {_PIP}"
    return (
        *_python(),
        # vLLM's CPU build would run on a machine's CPU beside eight idle GPUs.
        f"lock={LOCK}; if [ {_GPUS} != 0 ]; then lock={GPU_LOCK}; fi",
        # torch with what it needs on these machines (CUDA), the rest as locked.
        f'{pip} -c "$lock" torch',
        f'{pip} --no-deps -r "$lock"',
        f"{pip} --no-deps --force-reinstall {target}",
    )


def _python() -> tuple[str, ...]:
    """Make the environment with a Python that can carry it: cloud images have 3.10 as `python3`."""
    return (
        f"is_whole() {{ {VENV}/bin/python -m pip --version >/dev/null 2>&1; }}",
        # One that was cut off while it was made has a Python and no pip.
        f"is_whole || rm -rf {VENV}",
        "for each in python3.12 python3.11 python3; do",
        "  if is_whole; then break; fi",
        f"  if $each -c '{_IS_OURS}' 2>/dev/null; then $each -m venv {VENV}; fi",
        "done",
        f"is_whole || {UV} venv --quiet --seed --python 3.11 {VENV}",
    )
