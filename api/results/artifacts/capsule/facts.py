"""The manifest of a run's capsule, from its rows: code, seeds, dataset, attempts, machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.tables import Attempt, Cluster, Dataset, DatasetVersion, LaunchTry, Run, RunEvent
from hillclimb.protocol.payloads.studies.capsule import (
    CapsuleAttempt,
    CapsuleCluster,
    CapsuleDataset,
    CapsuleLaunchTry,
    CapsuleManifest,
    CapsuleTrainer,
)
from hillclimb.spec.backend.clouds import OWN_NETWORKS, cloud_of


def capsule_facts(session: Session, run: Run) -> CapsuleManifest:
    """Return the manifest without its members."""
    version = capsule_dataset(session, run)
    skypilot = run.spec["backend"].get("skypilot") or {}
    return CapsuleManifest.model_validate(
        {
            **{
                name: getattr(run, name) for name in CapsuleManifest.model_fields if name in _OF_RUN
            },
            "run_id": run.id,
            "trainers": list(_trainers(session, run)),
            "seeds": dict(seeds(run.spec)),
            "dataset": _dataset(*version) if version else None,
            "candidates": skypilot.get("candidates") or [],
            "attempts": list(_attempts(session, run.id)),
        }
    )


_OF_RUN = ("name", "status", "end_code", "created_at", "started_at", "ended_at", "config_hash",
           "last_seq", "code")  # fmt: skip


def capsule_dataset(session: Session, run: Run) -> tuple[Dataset, DatasetVersion] | None:
    """Return the run's dataset version if it has one that its project may read."""
    reference = run.spec["data"].get("dataset")
    if reference is None:
        return None
    row = session.execute(
        select(Dataset, DatasetVersion)
        .join(DatasetVersion, DatasetVersion.dataset_id == Dataset.id)
        .where(DatasetVersion.id == reference["id"], DatasetVersion.project_id == run.project_id)
    ).one_or_none()
    return None if row is None else (row[0], row[1])


def seeds(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield every key `seed` of a spec with its dotted path, in order of the paths."""
    for name, value in sorted(section.items()):
        if isinstance(value, dict):
            yield from seeds(value, f"{prefix}{name}.")
        elif name == "seed" and isinstance(value, int):
            yield f"{prefix}{name}", value


def _dataset(dataset: Dataset, version: DatasetVersion) -> CapsuleDataset:
    names = ("id", "digest", "num_tasks", "num_train", "num_eval")
    facts = {name: getattr(version, name) for name in names}
    return CapsuleDataset(name=dataset.name, version=version.number, **facts)


def _trainers(session: Session, run: Run) -> Iterator[CapsuleTrainer]:
    """Yield what each attempt's trainer reported at its start."""
    events = session.scalars(
        select(RunEvent)
        .where(
            RunEvent.run_id == run.id,
            RunEvent.type == "trainer.started",
            RunEvent.seq <= run.last_seq,
        )
        .order_by(RunEvent.seq)
    )
    for event in events:
        yield CapsuleTrainer.model_validate({**event.data, "attempt": event.attempt})


def _attempts(session: Session, run_id: str) -> Iterator[CapsuleAttempt]:
    query = select(Attempt, Cluster).outerjoin(Cluster, Cluster.attempt_id == Attempt.id)
    query = query.where(Attempt.run_id == run_id).order_by(Attempt.number)
    names = [name for name in CapsuleAttempt.model_fields if name != "cluster"]
    for attempt, cluster in session.execute(query):
        yield CapsuleAttempt(
            **{name: getattr(attempt, name) for name in names},
            cluster=_cluster(session, cluster) if cluster is not None else None,
        )


def _cluster(session: Session, cluster: Cluster) -> CapsuleCluster:
    query = select(LaunchTry).where(LaunchTry.cluster_id == cluster.id)
    tries = session.scalars(query.order_by(LaunchTry.launch, LaunchTry.number))
    times = {name: getattr(cluster, name) for name in ("billed_from", "running_at")}
    return CapsuleCluster(
        **_machine(cluster),
        **times,
        state=cluster.state,
        cause=cluster.cause,
        num_nodes=cluster.num_nodes,
        terminated_at=cluster.terminated_at,
        tries=[
            CapsuleLaunchTry(
                **_machine(each),
                launch=each.launch,
                seconds=each.seconds,
                outcome=each.outcome,
                error_class=each.error_class,
            )
            for each in tries
        ],
    )


def _machine(row: Cluster | LaunchTry) -> dict[str, Any]:
    """Return the machines of a row; on clusters of one's own the region would name one."""
    cloud = cloud_of(row.infra) if row.infra else None
    region = None if cloud in OWN_NETWORKS else row.region
    return {"cloud": cloud, "region": region, "sku": row.sku, "hourly_usd": row.hourly_usd}
