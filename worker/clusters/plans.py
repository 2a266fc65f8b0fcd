"""Builds the launch plan of an attempt's cluster from the run's spec and the operator's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import exclusions
from api.clusters.secrets import InvalidNodeSecrets, needed_secrets
from api.runs import store
from api.scheduling.rented.bootstrap import bootstrap_token
from api.tables import CloudExclusion, Cluster, Run
from api.tables.access.secrets.store import require_secrets, secrets_of
from hillclimb.hardware.features import eligible
from hillclimb.hardware.plan import HardwarePlan, hardware_plan
from hillclimb.process.network.addresses import PRIVATE_HOSTS
from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec
from hillclimb.spec.hosts import is_private_to_nodes
from hillclimb.spec.run import RunSpec
from worker.skypilot.node_setup import HOME, SECRETS_DIR, run_script, setup_script
from worker.skypilot.options import ClusterOptions
from worker.skypilot.port import ClusterPlan

GB, GIB = 1e9, 2**30
USABLE_MEMORY = 0.9
"""Share of a machine's nominal memory that kernel and firmware leave at least."""
MIN_DISK_GB, MIN_MEMORY_GB = 10.0, 4.0


def plan_for(
    session: Session, cluster: Cluster, options: ClusterOptions, *, now: datetime
) -> ClusterPlan:
    """Return the plan of an attempt's cluster; repeated calls differ in exclusions only.

    Raises SecretsError where a secret of the spec is missing or not for the host that it would be
    sent to, and where nodes do not reach the API and one is not readable.
    """
    run = session.get_one(Run, cluster.run_id)
    attempt = store.get_attempt(session, cluster.attempt_id)
    spec = RunSpec.model_validate(run.spec)
    sky = spec.backend.skypilot
    assert sky is not None, run.id
    hardware = hardware_plan(spec)
    assert hardware is not None, "a cluster of a spec without a cloud backend"
    own: dict[str, str] = {}
    operators = needed_secrets(spec, options.node_secrets, options.secret_hosts)
    require_secrets(session, spec, run.project_id)
    if not sky.api_reachable:
        own = secrets_of(session, options.keyring, spec, project_id=run.project_id, now=now)
    return ClusterPlan(
        name=cluster.name,
        job_name=attempt.id,
        candidates=prefer_not_excluded(
            _eligible(hardware, sky), exclusions.in_force(session, now=now)
        ),
        is_ordered=sky.choose == "ordered",
        num_nodes=sky.num_nodes,
        trainer=sky.trainer,
        setup=setup_script(sky.trainer, options.wheel.name),
        run=run_script(sky.trainer),
        files={f"{HOME}/{each.name}": str(each) for each in (options.wheel, *options.locks)},
        envs=_envs(sky, cluster, attempt.number, options)
        | {"HILLCLIMB_SECRET_NAMES": ",".join(sorted({*operators, *spec.secrets}))}
        | node_requirements(hardware),
        secrets=_secrets(sky, cluster, options, operators) | own,
        secrets_path=f"{SECRETS_DIR}/{cluster.attempt_id}.json",
        labels={"hillclimb-run": run.id, "hillclimb-attempt": str(attempt.number)},
        idle_minutes=sky.idle_minutes,
    )


def candidates_of(spec: RunSpec, sky: SkyPilotSpec) -> tuple[CandidateSpec, ...]:
    """Return the candidates that submission accepted, with the sizes of the estimate filled in.

    Where a newer estimate accepts none of them, every candidate with the features that its cloud
    needs is returned: the run was admitted.
    """
    hardware = hardware_plan(spec)
    assert hardware is not None, "a cluster of a spec without a cloud backend"
    return _eligible(hardware, sky)


def _eligible(hardware: HardwarePlan, sky: SkyPilotSpec) -> tuple[CandidateSpec, ...]:
    return hardware.eligible or tuple(eligible(sky.candidates, sky)[0])


def node_requirements(hardware: HardwarePlan) -> dict[str, str]:
    """Return the bounds of the node check as environment variables.

    The candidate that will come up is not known yet, so each bound is the minimum over all of them;
    no variables where nothing was estimated.
    """
    estimates = [each.estimate for each in hardware.candidates if each.why_not is None]
    sizes = [
        (each.free_disk_gib, each.memory_gib)
        for each in estimates
        if each is not None and each.free_disk_gib is not None and each.memory_gib is not None
    ]
    if not sizes:
        return {}
    disk_gb = min(disk for disk, _ in sizes) * GIB / GB
    memory_gb = min(memory for _, memory in sizes) * GIB / GB * USABLE_MEMORY
    return {
        "HILLCLIMB_NODE_MIN_DISK_GB": f"{max(MIN_DISK_GB, disk_gb):.1f}",
        "HILLCLIMB_NODE_MIN_MEMORY_GB": f"{max(MIN_MEMORY_GB, memory_gb):.1f}",
    }


def prefer_not_excluded(
    candidates: Sequence[CandidateSpec], excluded: Sequence[CloudExclusion]
) -> tuple[CandidateSpec, ...]:
    """Return the candidates with excluded ones last: with no other left they are tried again.

    An exclusion is advice only: one run's failure an hour ago must not refuse another run.
    """
    return tuple(
        sorted(candidates, key=lambda each: any(exclusions.concerns(one, each) for one in excluded))
    )


def _private_url(url: str) -> str:
    """Return the API's address for nodes, refusing one over which secrets would be readable.

    Raises InvalidNodeSecrets.
    """
    if not is_private_to_nodes(url):
        raise InvalidNodeSecrets(
            f"the nodes would receive their secrets unencrypted over {url}: set"
            " HILLCLIMB_NODE_API_URL to an https address, or to an IP address in a private network"
        )
    return url


def _envs(
    sky: SkyPilotSpec, cluster: Cluster, attempt: int, options: ClusterOptions
) -> dict[str, str]:
    return {
        "HILLCLIMB_API_URL": _private_url(options.api_url) if sky.api_reachable else "",
        "HILLCLIMB_BLOBS_URL": options.blobs_url,
        "HILLCLIMB_RUN_ID": cluster.run_id,
        "HILLCLIMB_ATTEMPT": str(attempt),
        "HILLCLIMB_ATTEMPT_ID": cluster.attempt_id,
        PRIVATE_HOSTS: options.private_hosts,
        "HILLCLIMB_SECRETS_FILE": f"{SECRETS_DIR}/{cluster.attempt_id}.json",
    }


def _secrets(
    sky: SkyPilotSpec, cluster: Cluster, options: ClusterOptions, operators: Mapping[str, str]
) -> dict[str, str]:
    """Return the secrets of the launch's file: the bootstrap token alone where nodes reach the API.

    Such a node claims its attempt with the token and gets the other secrets in the answer.
    """
    token = {
        "HILLCLIMB_BOOTSTRAP_TOKEN": bootstrap_token(cluster.attempt_id, secret=options.secret)
    }
    return token if sky.api_reachable else token | dict(operators)
