"""Submits a spec: checks and resolves it, and stores the run with its first events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from api.admission import planning
from api.admission.dataset.resolution import Resolution
from api.admission.dataset.resolution import resolve as resolve_dataset
from api.admission.refusals.acceptance.admit import with_evidence
from api.admission.refusals.continuation import refuse_misfit, resolve_warm_start
from api.admission.refusals.rental import rents
from api.clusters import exclusions, quotes
from api.clusters.quotes import Quotes
from api.results.comparison.config_diff import IMPORTED_MODEL
from api.runs import store
from api.runs.errors import CheckpointNotFound
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL, DesiredState, RunStatus
from api.scheduling import queue
from api.scheduling.capacity.arrivals import Arrival, arrive
from api.tables import Run
from api.tables.access.secrets.store import require_secrets
from api.tables.ids import new_id
from hillclimb.hardware.plan import HardwarePlan
from hillclimb.process import tracing
from hillclimb.process.code_revision import code_revision
from hillclimb.protocol.checkpoint_manifest import hash_of_resolved
from hillclimb.spec.backend.clouds import OWN_NETWORKS
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.run import RunSpec
from hillclimb.spec.sections import LEARNING_KINDS
from hillclimb.spec.training.model import checkpoint_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The effect of submitting a spec, without submitting it."""

    spec: dict[str, Any]
    """The resolved spec: every default and null written out."""
    config_hash: str
    warnings: tuple[str, ...]
    dataset: dict[str, Any] | None
    """Version and numbers of tasks per environment; null where tasks are generated."""
    hardware: HardwarePlan | None
    """The machines that it would rent; None for a run that rents none."""
    max_hours: float | None
    """Maximum lifetime of a cluster; None without `backend.skypilot`."""
    quoted: Quotes
    """Price quotes of the candidates."""
    queue_position: int
    """Its position in the queue; 1 is next."""
    queue_reason: str | None
    """Why it would wait; null if it would start now."""
    from_defaults: tuple[str, ...] = ()
    """Dotted keys that the defaults of the project or the operator set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A spec that is submitted to a project."""

    spec: RunSpec
    project_id: str
    actor: str
    now: datetime
    is_resumed: bool = False
    accepted: tuple[AcceptedPath, ...] | None = None
    """The paths that the service has evidence of; null where nobody has just read them."""
    is_alone: bool = True
    """False if others may submit to the project at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A run that was stored, and what it found."""

    run: Run
    arrival: Arrival


def submit(
    session: Session,
    spec: RunSpec,
    *,
    project_id: str,
    actor: str,
    now: datetime,
    is_resumed: bool = False,
) -> Run:
    """Store a queued run and its first events; raises what `submit_to_queue` does."""
    submission = Submission(
        spec=spec, project_id=project_id, actor=actor, now=now, is_resumed=is_resumed
    )
    return submit_to_queue(session, submission).run


def submit_to_queue(session: Session, submission: Submission) -> Submitted:
    """Store a queued run and its first events, and return it with what it found.

    For a resumed run, exclusions of its environments since the first submission are only warnings.

    Raises:
        RunNotFound: `lineage.forked_from`, `model.source` or `sft.rollouts_of` names no run of the
            project.
        CheckpointNotFound: `lineage.resumed_from` names no complete checkpoint, or the model is
            that of an imported run.
        CheckpointMisfit: the run cannot train on from that checkpoint.
        RunImported: the checkpoint would be an imported run's.
        DatasetUnusable: the spec names a dataset that the run cannot use.
        ModelUnsupported: the name of the spec's model says that it cannot be trained.
        NoEligibleHardware: no candidate can execute the run.
        PathNotAccepted: the spec uses a path that was never run, without flag and evidence.
        QuotaExceeded: the project may not submit another run now.
        QuotaNear: whether it may is only known when the submission is alone, and it is not.
        SecretMissing: the spec names a secret that the project does not have.
        SecretNotForHost: the spec would send a secret to a host that it is not for.
    """
    spec, project_id, now = submission.spec, submission.project_id, submission.now
    store.keep_runs(session, _sources(spec))
    _check_lineage(session, spec, project_id)
    spec = with_evidence(session, spec, submission.accepted)
    spec = resolve_warm_start(session, spec, project_id)
    arrival = arrive(session, project_id, now=now, is_alone=submission.is_alone)
    require_secrets(session, spec, project_id)
    checked = planning.check(spec, _quoted(session, spec, now=now).offers)
    resolution = resolve_dataset(
        session,
        spec,
        project_id=project_id,
        now=now,
        is_resumed=submission.is_resumed,
        keeps_environments=_keeps_environments(session, spec),
    )
    spec = resolution.spec
    _check_continuation(session, spec)
    run = _queued(spec, project_id=project_id, actor=submission.actor, now=now)
    warnings = [("lineage", sentence) for sentence in _deletion_warning(session, spec)]
    warnings += [("budget", sentence) for sentence in _money_warnings(spec)]
    drafts = _warning_events(warnings, resolution, checked, at=now)
    append(session, run, [_created(run, is_resumed=submission.is_resumed), *drafts])
    return Submitted(run=run, arrival=arrival)


def _queued(spec: RunSpec, *, project_id: str, actor: str, now: datetime) -> Run:
    resolved = resolve(spec)
    return Run(
        id=new_id("run"),
        project_id=project_id,
        name=spec.name,
        status=RunStatus.QUEUED.value,
        desired_state=DesiredState.RUNNING.value,
        spec=resolved,
        config_hash=hash_of_resolved(resolved),
        code=asdict(code_revision()),
        created_by=actor,
        tags=sorted(set(spec.tags)),
        links={},
        created_at=now,
        updated_at=now,
        progress_total=_total_steps(spec),
        attempt=0,
        num_failures=0,
        resumed_after=0,
        progress_step=0,
        last_seq=0,
        epoch=0,
        status_since=now,
        due_at=now,
    )


def _created(run: Run, *, is_resumed: bool) -> Draft:
    data = {
        "name": run.name,
        "config_hash": run.config_hash,
        "total_steps": run.progress_total,
        "is_resumed": is_resumed,
    }
    traceparent = tracing.current_traceparent()
    if traceparent is not None:
        data["traceparent"] = traceparent
    return Draft(type="run.created", at=run.created_at, actor=run.created_by, data=data)


def plan(
    session: Session,
    spec: RunSpec,
    *,
    project_id: str,
    now: datetime,
    rental: Sequence[str] = (),
) -> Plan:
    """Return the run that `submit` would store and its place in the queue; creates nothing.

    `rental` are warnings that the service could not rent the run's nodes. Raises as `submit` does.
    """
    _check_lineage(session, spec, project_id)
    spec = with_evidence(session, spec)
    spec = resolve_warm_start(session, spec, project_id)
    require_secrets(session, spec, project_id)
    quoted = _quoted(session, spec, now=now)
    checked = planning.check(spec, quoted.offers)
    resolution = resolve_dataset(
        session,
        spec,
        project_id=project_id,
        now=now,
        keeps_environments=_keeps_environments(session, spec),
    )
    spec = resolution.spec
    _check_continuation(session, spec)
    resolved = resolve(spec)
    if rents(spec):
        place = queue.queue_position_of_next_on_cluster(session, project_id, now=now)
    else:
        place = queue.queue_position_of_next(session, project_id, now=now)
    return Plan(
        spec=resolved,
        config_hash=hash_of_resolved(resolved),
        warnings=(
            *_warnings(spec),
            *_deletion_warning(session, spec),
            *checked.warnings,
            *_exclusion_warnings(session, spec, now=now),
            *resolution.warnings,
            *resolution.lint,
            *rental,
        ),
        dataset=resolution.dataset,
        hardware=checked.plan,
        max_hours=spec.backend.skypilot.max_hours if spec.backend.skypilot else None,
        quoted=quoted,
        queue_position=place.position,
        queue_reason=place.reason,
    )


def _quoted(session: Session, spec: RunSpec, *, now: datetime) -> Quotes:
    skypilot = spec.backend.skypilot
    return quotes.quotes_of(session, skypilot, now=now) if skypilot is not None else Quotes()


def _exclusion_warnings(session: Session, spec: RunSpec, *, now: datetime) -> tuple[str, ...]:
    """Warn of candidates that a cloud exclusion would move to the end of the spec's order."""
    skypilot = spec.backend.skypilot
    if skypilot is None or skypilot.choose != "ordered":
        return ()
    return exclusions.describe(skypilot.candidates, exclusions.in_force(session, now=now))


def resolve(spec: RunSpec) -> dict[str, Any]:
    """Return the spec with every default and null written out, as JSON values."""
    return spec.model_dump(mode="json")


def _warning_events(
    warnings: Sequence[tuple[str, str]],
    resolution: Resolution,
    checked: planning.Checked,
    *,
    at: datetime,
) -> list[Draft]:
    """Return an event for each warning: the passed ones, then dataset, lint and hardware."""
    sentences = [*warnings, *(("dataset", warning) for warning in resolution.warnings)]
    sentences += [("dataset_lint", warning) for warning in resolution.lint]
    sentences += [("hardware", warning) for warning in checked.warnings]
    return [
        Draft(type="run.warning", at=at, data={"code": code, "message": sentence})
        for code, sentence in sentences
    ]


def _sources(spec: RunSpec) -> Iterator[str]:
    """Yield the runs whose checkpoints or rollouts the run would read."""
    for named in (spec.lineage.resumed_from, checkpoint_source(spec.model.source)):
        if named is not None:
            yield named.run_id
    if spec.sft.rollouts_of is not None:
        yield spec.sft.rollouts_of


def _check_lineage(session: Session, spec: RunSpec, project_id: str) -> None:
    if spec.model.source.startswith(IMPORTED_MODEL):
        raise CheckpointNotFound(
            f"model.source is {spec.model.source!r}: the spec of an imported run says where its"
            " figures come from, and its weights are not here. Name a model that this service"
            " can load."
        )
    fork = spec.lineage.forked_from
    if fork is not None:
        store.get_run(session, project_id, fork.run_id)
    source = spec.lineage.resumed_from
    if source is None:
        return
    writer = session.get(Run, source.run_id)
    if writer is not None and writer.project_id == project_id:
        store.refuse_imported(writer, "be evaluated, forked or continued from a checkpoint")
    checkpoint = store.find_checkpoint(
        session, project_id, source.run_id, step=source.step, attempt=source.attempt
    )
    if checkpoint is None:
        raise CheckpointNotFound(
            f"Run {source.run_id} has no complete checkpoint of attempt {source.attempt} at step"
            f" {source.step}."
        )


def _check_continuation(session: Session, spec: RunSpec) -> None:
    """Refuse a training run that does not fit its checkpoint; its dataset must be resolved."""
    source = spec.lineage.resumed_from
    if source is not None and spec.kind in LEARNING_KINDS:
        refuse_misfit(spec, session.get_one(Run, source.run_id).spec, step=source.step)


def _deletion_warning(session: Session, spec: RunSpec) -> list[str]:
    """Warn if the run that wrote the checkpoint may delete it before this one reads it."""
    source = spec.lineage.resumed_from or checkpoint_source(spec.model.source)
    if source is None:
        return []
    writer = session.get_one(Run, source.run_id)
    if RunStatus(writer.status) in TERMINAL:
        return []
    return [
        f"Run {source.run_id} has not ended and keeps only its newest"
        f" {writer.spec['checkpoints']['keep_last']} checkpoints: if it deletes step {source.step}"
        " before this run has read it, this run fails."
    ]


def _keeps_environments(session: Session, spec: RunSpec) -> bool:
    """Return True if the run resumes one of the same dataset version and environments.

    The service may have filled these in: then no user named an excluded one on purpose.
    """
    source, dataset = spec.lineage.resumed_from, spec.data.dataset
    if source is None or dataset is None or dataset.id is None:
        return False
    before = session.get_one(Run, source.run_id).spec["data"]
    dataset_before = before.get("dataset")
    is_same = dataset_before is not None and dataset_before["id"] == dataset.id
    return is_same and set(before["env_keys"]) == set(spec.data.env_keys)


def _total_steps(spec: RunSpec) -> int:
    """Return the run's last step; for a run that trains nothing, the step of its checkpoint."""
    if spec.kind in LEARNING_KINDS:
        return spec.schedule.total_steps
    return spec.lineage.resumed_from.step if spec.lineage.resumed_from else 0


def _warnings(spec: RunSpec) -> list[str]:
    """Return warnings about settings that are allowed but rarely intended."""
    faulty = spec.environment.faults != type(spec.environment.faults)()
    injected = ["environment.faults is set: failures are injected on purpose."] if faulty else []
    warnings = injected + _money_warnings(spec)
    return _training_warnings(spec) + warnings if spec.kind == "train" else warnings


def _money_warnings(spec: RunSpec) -> list[str]:
    sky, budget = spec.backend.skypilot, spec.budget
    if sky is None or budget is None or budget.usd is None or budget.hours is not None:
        return []
    clouds = {candidate.cloud for candidate in sky.candidates} & set(OWN_NETWORKS)
    return [
        f"budget.usd limits nothing on {cloud} unless SkyPilot's settings name a price there:"
        " set budget.hours too."
        for cloud in sorted(clouds)
    ]


def _training_warnings(spec: RunSpec) -> list[str]:
    warnings = []
    if not spec.eval.before_training:
        warnings.append(
            "eval.before_training is false: the result will have no baseline to compare with."
        )
    if spec.algorithm.shuffle_rewards:
        warnings.append(
            "algorithm.shuffle_rewards is true: this is a control run that cannot learn."
        )
    if spec.checkpoints.interval > spec.schedule.total_steps:
        warnings.append(
            "checkpoints.interval is above schedule.total_steps: a crash starts from the beginning."
        )
    return warnings
