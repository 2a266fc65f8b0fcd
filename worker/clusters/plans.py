"""From a run's spec and its attempt to what is asked of the clouds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import exclusions
from api.clusters.exchange import exchange_code
from api.clusters.secrets import BadNodeSecrets
from api.runs import store
from api.tables import CloudExclusion, Cluster, Run
from trainer.contract.clusters.features import eligible
from trainer.contract.clusters.plan import HardwarePlan, hardware_plan
from trainer.contract.clusters.spec import CandidateSpec, SkyPilotSpec
from trainer.contract.hosts import is_private_to_nodes
from trainer.contract.spec import RunSpec
from worker.clusters.base import ClusterPlan
from worker.clusters.options import ClusterOptions
from worker.clusters.setup import GIVEN, GPU_LOCK, HOME, LOCK, run_script, setup_script

GB, GIB = 1e9, 2**30
NOMINAL = 0.9
"""Of the memory that a machine is sold with, its kernel and firmware leave at least this."""
LEAST_DISK_GB, LEAST_MEMORY_GB = 10.0, 4.0


def plan_for(
    session: Session, cluster: Cluster, options: ClusterOptions, *, now: datetime
) -> ClusterPlan:
    """Return the plan of an attempt's cluster; the same one every time, but for exclusions."""
    run = session.get_one(Run, cluster.run_id)
    attempt = store.get_attempt(session, cluster.attempt_id)
    spec = RunSpec.model_validate(run.spec)
    sky = spec.backend.skypilot
    assert sky is not None, run.id
    hardware = hardware_plan(spec)
    assert hardware is not None, "a cluster of a spec that rents none"
    return ClusterPlan(
        name=cluster.name,
        job_name=attempt.id,
        candidates=not_excluded(_taken(hardware, sky), exclusions.in_force(session, now=now)),
        is_ordered=sky.choose == "ordered",
        num_nodes=sky.num_nodes,
        trainer=sky.trainer,
        setup=setup_script(sky.trainer, options.wheel.name),
        run=run_script(sky.trainer),
        files={
            f"{HOME}/{options.wheel.name}": str(options.wheel),
            LOCK: str(options.locks[0]),
            GPU_LOCK: str(options.locks[1]),
        },
        envs=_envs(sky, cluster, attempt.number, options) | demands_of(hardware),
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
    return _taken(found, sky)


def _taken(found: HardwarePlan, sky: SkyPilotSpec) -> tuple[CandidateSpec, ...]:
    return found.taken or tuple(eligible(sky.candidates, sky)[0])


def demands_of(found: HardwarePlan) -> dict[str, str]:
    """Return the bounds of the acceptance test as a node reads them: what the run needs.

    Which of the candidates will be had is not known yet, so the least of theirs; none where
    nothing was estimated.
    """
    taken = [each.estimate for each in found.candidates if each.why_not is None]
    sizes = [
        (each.free_disk_gib, each.memory_gib)
        for each in taken
        if each is not None and each.free_disk_gib is not None and each.memory_gib is not None
    ]
    if not sizes:
        return {}
    disk_gb = min(disk for disk, _ in sizes) * GIB / GB
    memory_gb = min(memory for _, memory in sizes) * GIB / GB * NOMINAL
    return {
        "HILLCLIMB_NODE_MIN_DISK_GB": f"{max(LEAST_DISK_GB, disk_gb):.1f}",
        "HILLCLIMB_NODE_MIN_MEMORY_GB": f"{max(LEAST_MEMORY_GB, memory_gb):.1f}",
    }


def not_excluded(
    candidates: Sequence[CandidateSpec], learnt: Sequence[CloudExclusion]
) -> tuple[CandidateSpec, ...]:
    """Return the candidates that failed of late last: with nothing else left they are asked again.

    An exclusion is advice, not a wall: a run is not refused for what another met an hour ago.
    """
    return tuple(
        sorted(candidates, key=lambda each: any(exclusions.concerns(one, each) for one in learnt))
    )


def _told_in_private(url: str) -> str:
    """Return the API's address as nodes have it: the operator's secrets travel over it.

    Raises BadNodeSecrets.
    """
    if not is_private_to_nodes(url):
        raise BadNodeSecrets(
            f"the nodes would be told their secrets over {url}, in the clear: give"
            " HILLCLIMB_NODE_API_URL an address that begins with https, or the number of one in a"
            " private network"
        )
    return url


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
