"""Rows of experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from api.admission.campaigns.cell_states import CellStatus, status_of_run
from api.admission.experiments.errors import (
    ExperimentExists,
    ExperimentNotFound,
    ExperimentRejected,
)
from api.admission.experiments.request import (
    MAX_RUNS,
    AddedRun,
    ExperimentEdit,
    ExperimentSpec,
)
from api.runs.store import get_run, keep_runs
from api.tables import Run
from api.tables.access import audit
from api.tables.access.identity import Principal
from api.tables.ids import new_id
from api.tables.studies.campaigns import CampaignCell
from api.tables.studies.experiments import Experiment, ExperimentRun

BASELINE, VARIANT = "baseline", "variant"
MAX_ARM = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun:
    """A place of an experiment with its run, if it has one."""

    place: ExperimentRun
    run: Run | None
    cell: CampaignCell | None

    @property
    def status(self) -> CellStatus:
        """The state of the run, or why the service refused it."""
        return status_of_run(self.run, self.cell.problem if self.cell else None)


def create(
    session: Session, spec: ExperimentSpec, caller: Principal, *, now: datetime
) -> Experiment:
    """Store an experiment, with its baseline if it names a run.

    Raises:
        ExperimentExists: the project has one of this key.
        ExperimentNotFound: there is no such parent.
        RunNotFound: the baseline is no run of the project.
    """
    parent = get_experiment(session, caller.project_id, spec.parent) if spec.parent else None
    experiment_id = new_id("exp")
    row = {
        "id": experiment_id,
        "project_id": caller.project_id,
        "key": spec.key,
        "parent_id": parent.id if parent else None,
        "text": spec.text.model_dump(mode="json"),
        "created_by": caller.actor,
        "created_at": now,
        "updated_at": now,
    }
    statement = insert(Experiment).values(row).on_conflict_do_nothing().returning(Experiment.id)
    if session.scalar(statement) is None:
        raise ExperimentExists(
            f"There is an experiment {spec.key!r} already: edit it, or choose another key."
        )
    experiment = session.get_one(Experiment, experiment_id)
    audit.note_created(experiment)
    audit.name_target(experiment.key)
    if spec.baseline is not None:
        add_run(session, experiment, AddedRun(run_id=spec.baseline, role=BASELINE))
    return experiment


def edit(
    session: Session, experiment: Experiment, changes: ExperimentEdit, *, now: datetime
) -> None:
    """Replace the parts of an experiment that were sent.

    Raises:
        ExperimentNotFound: there is no such parent.
        ExperimentRejected: the parent descends from the experiment, or the title is taken away.
    """
    if "title" in changes.model_fields_set and changes.title is None:
        raise ExperimentRejected("An experiment needs a title: send one, or leave the key out.")
    if "parent" in changes.model_fields_set:
        _set_parent(session, experiment, changes.parent)
    experiment.text = changes.over(experiment.text).model_dump(mode="json")
    experiment.updated_at = now


def get_experiment(
    session: Session, project_id: str, key: str, *, locked: bool = False
) -> Experiment:
    """Return the experiment of a key; raises ExperimentNotFound also for other projects'."""
    query = select(Experiment).where(Experiment.project_id == project_id, Experiment.key == key)
    if locked:
        query = query.with_for_update().execution_options(populate_existing=True)
    experiment = session.scalar(query)
    if experiment is None:
        raise ExperimentNotFound(
            f"There is no experiment {key!r}: `hillclimb experiment list` names all."
        )
    return experiment


def list_experiments(
    session: Session, project_id: str, *, before: Experiment | None, limit: int
) -> Sequence[Experiment]:
    """Return up to `limit` experiments, newest first, older than `before`."""
    query = select(Experiment).where(Experiment.project_id == project_id)
    if before is not None:
        place = tuple_(Experiment.created_at, Experiment.id)
        query = query.where(place < (before.created_at, before.id))
    query = query.order_by(Experiment.created_at.desc(), Experiment.id.desc())
    return session.scalars(query.limit(limit)).all()


def keys_of(session: Session, experiments: Sequence[Experiment]) -> Mapping[str, str]:
    """Return the keys of the experiments' parents, by id."""
    ids = {each.parent_id for each in experiments if each.parent_id is not None}
    query = select(Experiment.id, Experiment.key).where(Experiment.id.in_(ids))
    return {str(each): str(key) for each, key in session.execute(query)} if ids else {}


def list_runs(session: Session, experiment: Experiment) -> list[PlacedRun]:
    """Return the experiment's places by number, each with its run."""
    added, celled = aliased(Run), aliased(Run)
    query = (
        select(ExperimentRun, CampaignCell, added, celled)
        .outerjoin(
            CampaignCell,
            (CampaignCell.project_id == ExperimentRun.project_id)
            & (CampaignCell.digest == ExperimentRun.digest),
        )
        .outerjoin(added, added.id == ExperimentRun.run_id)
        .outerjoin(celled, celled.id == CampaignCell.run_id)
        .where(ExperimentRun.experiment_id == experiment.id)
        .order_by(ExperimentRun.number)
    )
    return [
        PlacedRun(place=place, cell=cell, run=own or of_cell)
        for place, cell, own, of_cell in session.execute(query)
    ]


def add_run(session: Session, experiment: Experiment, body: AddedRun) -> None:
    """Add a run of the project; repeating it changes nothing. The experiment must be locked.

    Raises:
        RunNotFound: there is no such run.
        ExperimentRejected: the run is in it under another role or arm, the arm has another role,
            another arm is the baseline, or the experiment is full.
    """
    keep_runs(session, [body.run_id])
    run = get_run(session, experiment.project_id, body.run_id)
    arm = body.arm or (BASELINE if body.role == BASELINE else run.name[:MAX_ARM])
    placed = list_runs(session, experiment)
    for each in placed:
        if each.run is not None and each.run.id == run.id:
            if (each.place.role, each.place.arm) != (body.role, arm):
                raise ExperimentRejected(
                    f"Run {run.id} is in {experiment.key} as {each.place.role} of the arm"
                    f" {each.place.arm!r}: remove it first."
                )
            return
    refuse_role(placed, experiment, arm, body.role)
    session.add(
        ExperimentRun(
            experiment_id=experiment.id,
            number=next_number(placed),
            project_id=experiment.project_id,
            run_id=run.id,
            role=body.role,
            arm=arm,
            seed=run.spec["schedule"]["seed"],
        )
    )
    session.flush()


def refuse_role(
    placed: Sequence[PlacedRun], experiment: Experiment, arm: str, role: str, *, added: int = 1
) -> None:
    """Refuse a run that would make two roles of one arm, two baselines, or too many runs.

    Raises:
        ExperimentRejected: a sentence that says what would do.
    """
    roles = {each.place.arm: each.place.role for each in placed}
    if roles.get(arm, role) != role:
        raise ExperimentRejected(
            f"The arm {arm!r} of {experiment.key} is its {roles[arm]}: name another arm, or the"
            " same role."
        )
    others = [each for each, its in roles.items() if its == BASELINE and each != arm]
    if role == BASELINE and others:
        raise ExperimentRejected(
            f"The baseline of {experiment.key} is {others[0]!r}: remove its runs first, or add this"
            " one as a variant."
        )
    if len(placed) + added > MAX_RUNS:
        raise ExperimentRejected(f"An experiment has at most {MAX_RUNS} runs: begin another one.")


def next_number(placed: Sequence[PlacedRun]) -> int:
    """Return the number of the next place."""
    return max((each.place.number for each in placed), default=0) + 1


def remove_run(session: Session, experiment: Experiment, name: str) -> None:
    """Remove a run by its id or its number; the run itself goes on.

    Raises:
        ExperimentNotFound: the experiment has no such run.
    """
    for each in list_runs(session, experiment):
        if name == str(each.place.number) or (each.run is not None and each.run.id == name):
            session.delete(each.place)
            session.flush()
            return
    raise ExperimentNotFound(f"Experiment {experiment.key} has no run {name[:60]!r}.")


def num_runs(session: Session, experiments: Sequence[Experiment]) -> Mapping[str, int]:
    """Return the numbers of places by experiment id."""
    ids = [each.id for each in experiments]
    query = select(ExperimentRun.experiment_id, func.count()).where(
        ExperimentRun.experiment_id.in_(ids)
    )
    rows = session.execute(query.group_by(ExperimentRun.experiment_id))
    return {str(each): int(number) for each, number in rows}


def _set_parent(session: Session, experiment: Experiment, key: str | None) -> None:
    """Set the parent; the locks on all of them keep two changes from closing a circle together."""
    if key is None:
        experiment.parent_id = None
        return
    parent = get_experiment(session, experiment.project_id, key)
    query = select(Experiment.id, Experiment.parent_id)
    query = query.where(Experiment.project_id == experiment.project_id)
    rows = session.execute(query.order_by(Experiment.id).with_for_update())
    parents: dict[str, str | None] = {str(each): above for each, above in rows}
    above: str | None = parent.id
    while above is not None:
        if above == experiment.id:
            raise ExperimentRejected(
                f"{key} goes on from {experiment.key}: an experiment cannot be its own ancestor."
            )
        above = parents.get(above)
    experiment.parent_id = parent.id
