"""From a run's spec and its attempt to what is asked of the clouds."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from api.clusters import exclusions
from api.clusters.exchange import exchange_code
from api.clusters.secrets import BadNodeSecrets
from api.runs import store
from api.tables import CloudExclusion, Cluster, Run
from trainer.contract.clusters.features import eligible
from trainer.contract.clusters.plan import hardware_plan
from trainer.contract.clusters.spec import CandidateSpec, SkyPilotSpec, TrainerInstall
from trainer.contract.hosts import is_private
from trainer.contract.spec import RunSpec
from worker.clusters.base import ClusterPlan
from worker.clusters.options import ClusterOptions

HOME = "~/hillclimb"
"""Where a node keeps what is ours: the wheel, the lock, the environment, the run directory."""
LOCK = f"{HOME}/trainer.txt"
VENV = f"{HOME}/venv"
SITE = f"{HOME}/site"
"""The wheel beside an environment that is not ours to change."""
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


def plan_for(
    session: Session, cluster: Cluster, options: ClusterOptions, *, now: datetime
) -> ClusterPlan:
    """Return the plan of an attempt's cluster; the same one every time, but for exclusions."""
    run = session.get_one(Run, cluster.run_id)
    attempt = store.get_attempt(session, cluster.attempt_id)
    spec = RunSpec.model_validate(run.spec)
    sky = spec.backend.skypilot
    assert sky is not None, run.id
    return ClusterPlan(
        name=cluster.name,
        job_name=attempt.id,
        candidates=not_excluded(candidates_of(spec, sky), exclusions.in_force(session, now=now)),
        is_ordered=sky.choose == "ordered",
        num_nodes=sky.num_nodes,
        trainer=sky.trainer,
        setup=setup_script(sky.trainer, options.wheel.name),
        run=run_script(sky.trainer),
        files={f"{HOME}/{options.wheel.name}": str(options.wheel), LOCK: str(options.lock)},
        envs=_envs(sky, cluster, attempt.number, options),
        secrets=_secrets(sky, cluster, options),
        secrets_at=f"{GIVEN}/{cluster.attempt_id}.json",
        labels={"hillclimb-run": run.id, "hillclimb-attempt": str(attempt.number)},
        idle_minutes=sky.idle_minutes,
    )


def candidates_of(spec: RunSpec, sky: SkyPilotSpec) -> tuple[CandidateSpec, ...]:
    """Return the machines that submission took, with the sizes that the estimate filled in.

    Where a newer estimate takes none of them, what the clouds can do at all is asked for: the run
    was accepted.
    """
    found = hardware_plan(spec)
    assert found is not None, "a cluster of a spec that rents none"
    return found.taken or tuple(eligible(sky.candidates, sky)[0])


def not_excluded(
    candidates: Sequence[CandidateSpec], learnt: Sequence[CloudExclusion]
) -> tuple[CandidateSpec, ...]:
    """Return the candidates that failed of late last: with nothing else left they are asked again.

    An exclusion is advice, not a wall: a run is not refused for what another met an hour ago.
    """
    return tuple(
        sorted(candidates, key=lambda each: any(exclusions.concerns(one, each) for one in learnt))
    )


def setup_script(install: TrainerInstall, wheel: str) -> str:
    """Return what every node does before the job: the data plane's environment.

    One after the other where they share their home, as a Slurm's nodes do: pip would pull files
    from under itself.
    """
    installed = _installed(install, f"{HOME}/{wheel}")
    return "\n".join(
        ("set -e", *_private(), *_disarmed(), "(", "flock 9", *installed, f") 9>{SETTING_UP}")
    )


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
        f"test -x {VENV}/bin/python || python3 -m venv {VENV}",
        # torch with what it needs on these machines (CUDA), the rest as locked.
        f"{pip} -c {LOCK} torch",
        f"{pip} --no-deps -r {LOCK}",
        f"{pip} --no-deps --force-reinstall {target}",
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


def _told_in_private(url: str) -> str:
    """Return the API's address as nodes have it: the operator's secrets travel over it.

    Raises BadNodeSecrets.
    """
    if not is_private(url) and not _is_in_private_network(url):
        raise BadNodeSecrets(
            f"the nodes would be told their secrets over {url}, in the clear: give"
            " HILLCLIMB_NODE_API_URL an address that begins with https, or the number of one in a"
            " private network"
        )
    return url


def _is_in_private_network(url: str) -> bool:
    try:
        return ipaddress.ip_address(urlsplit(url).hostname or "").is_private
    except ValueError:
        return False


def _envs(
    sky: SkyPilotSpec, cluster: Cluster, attempt: int, options: ClusterOptions
) -> dict[str, str]:
    return {
        "HILLCLIMB_API_URL": _told_in_private(options.api_url) if sky.api_reachable else "",
        "HILLCLIMB_BLOBS_URL": options.blobs_url,
        "HILLCLIMB_RUN_ID": cluster.run_id,
        "HILLCLIMB_ATTEMPT": str(attempt),
        "HILLCLIMB_ATTEMPT_ID": cluster.attempt_id,
        "HILLCLIMB_GIVEN": f"{GIVEN}/{cluster.attempt_id}.json",
        "HILLCLIMB_SECRET_NAMES": ",".join(sorted(options.node_secrets)),
    }


def _secrets(sky: SkyPilotSpec, cluster: Cluster, options: ClusterOptions) -> dict[str, str]:
    """What the launch's file has: the code alone, where the nodes can exchange it."""
    code = {"HILLCLIMB_EXCHANGE_CODE": exchange_code(cluster.attempt_id, secret=options.secret)}
    return code if sky.api_reachable else code | dict(options.node_secrets)
