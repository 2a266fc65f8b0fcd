"""Creates, retries and cancels campaigns; each cell has at most one live run, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.admission.campaigns import store
from api.admission.campaigns.cell_states import status_of
from api.admission.campaigns.cells import CheckpointSource, plan_cells
from api.admission.campaigns.request import CampaignSpec
from api.admission.defaults import document_with_defaults
from api.admission.refusals.acceptance.admit import accepted_paths
from api.admission.refusals.acceptance.errors import PathNotAccepted
from api.clusters.errors import NoEligibleHardware
from api.datasets.errors import DatasetUnusable
from api.runs.errors import AddressRefused, CheckpointNotFound, InvalidTransition
from api.runs.store import checkpoint_at, get_run, lock_run
from api.scheduling import control
from api.tables import Run
from api.tables.access.identity import Principal
from api.tables.access.secrets.errors import SecretMissing, SecretNotForHost
from api.tables.ids import new_id
from api.tables.studies.campaigns import Campaign, CampaignCell
from hillclimb.protocol.payloads.studies.campaigns import CellState
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.rules.project_defaults import DefaultValues
from hillclimb.spec.run import RunSpec

Admit = Callable[[Session, RunSpec], Run]
"""Stores a queued run; raises what `api.admission.submit.submit` does."""
REFUSALS = (
    *(AddressRefused, CheckpointNotFound, DatasetUnusable, NoEligibleHardware),
    *(PathNotAccepted, SecretMissing, SecretNotForHost),
)


def create(
    session: Session,
    spec: CampaignSpec,
    caller: Principal,
    admit: Admit,
    *,
    operator: DefaultValues,
    now: datetime,
) -> tuple[Campaign, list[str]]:
    """Store a campaign and launch its cells; return it with the ids of the new runs.

    A cell that another campaign of the project has already is shared: its run is not launched
    again. A cell whose run the service refuses is blocked, and the others go on.

    Raises:
        CampaignRejected: the run spec of a cell is not valid.
        CheckpointNotFound: a model names no checkpoint of the project.
        RunNotFound: a model names a run that the project does not have.
    """
    project_id = caller.project_id
    base = document_with_defaults(session, spec.base, project_id, operator).document
    spec = spec.model_copy(update={"base": base})
    planned = plan_cells(
        spec,
        lambda run_id, step: _newest_checkpoint(session, project_id, run_id, step),
        accepted_paths(session),
    )
    campaign = Campaign(
        id=new_id("camp"),
        project_id=project_id,
        name=spec.name,
        spec=spec.model_dump(mode="json"),
        created_by=caller.actor,
        created_at=now,
    )
    session.add(campaign)
    session.flush()
    store.add_cells(session, campaign, planned)
    cells = store.lock_cells(session, project_id, [each.digest for each in planned])
    return campaign, launch_cells(session, [cell for cell in cells if cell.run_id is None], admit)


def retry(session: Session, campaign: Campaign, admit: Admit) -> list[str]:
    """Launch every retryable cell again, and those that the service refused; return the run ids."""
    filled = store.list_cells(session, campaign)
    digests = [each.cell.digest for each in filled]
    locked = store.lock_cells(session, campaign.project_id, digests)
    again = {
        each.cell.digest
        for each in store.list_cells(session, campaign)
        if each.run is None or status_of(each).state is CellState.RETRYABLE
    }
    return launch_cells(session, [cell for cell in locked if cell.digest in again], admit)


def cancel(session: Session, campaign: Campaign, *, actor: str, now: datetime) -> list[str]:
    """Cancel the runs that no other campaign shares; return their ids."""
    shared = store.count_campaigns_of_cells(session, campaign)
    cancelled = []
    for each in store.list_cells(session, campaign):
        is_live = status_of(each).state in (CellState.ACCEPTED, CellState.RUNNING)
        if each.run is None or not is_live or shared[each.cell.digest] > 1:
            continue
        run = lock_run(session, each.run.id, project_id=campaign.project_id)
        try:
            control.cancel(session, run, actor=actor, now=now)
        except InvalidTransition:  # it has finished and waits for its last events
            continue
        cancelled.append(run.id)
    return cancelled


def launch_cells(session: Session, cells: Sequence[CampaignCell], admit: Admit) -> list[str]:
    """Admit the runs of locked cells, or store why the service refuses them; return their ids."""
    launched = []
    accepted = accepted_paths(session)
    for cell in cells:
        try:
            with session.begin_nested():
                spec = RunSpec.model_validate(cell.spec, context={"accepted": accepted})
                run = admit(session, spec)
        except REFUSALS as error:
            cell.run_id, cell.problem = None, str(error)
            continue
        except ValidationError as error:  # valid when it was planned: its evidence is gone
            problems = "; ".join(each.message for each in explain(error))
            cell.run_id, cell.problem = None, problems
            continue
        cell.run_id, cell.problem = run.id, None
        cell.num_launches += 1
        launched.append(run.id)
    session.flush()
    return launched


def _newest_checkpoint(
    session: Session, project_id: str, run_id: str, step: int
) -> CheckpointSource:
    run = get_run(session, project_id, run_id)
    checkpoint = checkpoint_at(session, run_id, step)
    if checkpoint is None:
        raise CheckpointNotFound(f"Run {run_id} has no complete checkpoint at step {step}.")
    return CheckpointSource(run_id=run_id, step=step, attempt=checkpoint.attempt, spec=run.spec)
