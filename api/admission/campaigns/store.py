"""Rows of campaigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.admission.campaigns.cells import PlannedCell
from api.admission.campaigns.errors import CampaignNotFound
from api.tables import Run
from api.tables.studies.campaigns import Campaign, CampaignCell, CampaignMember
from hillclimb.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledCell:
    """A cell of a campaign with its run, if it has one."""

    member: CampaignMember
    cell: CampaignCell
    run: Run | None


def get_campaign(session: Session, project_id: str, campaign_id: str) -> Campaign:
    """Return the campaign; raises CampaignNotFound also for those of other projects."""
    campaign = session.get(Campaign, campaign_id)
    if campaign is None or campaign.project_id != project_id:
        raise CampaignNotFound(
            f"There is no campaign {campaign_id!r}: `hillclimb campaign list` names all."
        )
    return campaign


def list_campaigns(
    session: Session, project_id: str, *, before: Campaign | None, limit: int
) -> Sequence[Campaign]:
    """Return up to `limit` campaigns, newest first, older than `before`."""
    query = select(Campaign).where(Campaign.project_id == project_id)
    if before is not None:
        place = tuple_(Campaign.created_at, Campaign.id)
        query = query.where(place < (before.created_at, before.id))
    query = query.order_by(Campaign.created_at.desc(), Campaign.id.desc())
    return session.scalars(query.limit(limit)).all()


def list_cells(session: Session, campaign: Campaign) -> list[FilledCell]:
    """Return the campaign's cells by number."""
    query = (
        select(CampaignMember, CampaignCell, Run)
        .join(
            CampaignCell,
            (CampaignCell.project_id == CampaignMember.project_id)
            & (CampaignCell.digest == CampaignMember.digest),
        )
        .outerjoin(Run, Run.id == CampaignCell.run_id)
        .where(CampaignMember.campaign_id == campaign.id)
        .order_by(CampaignMember.number)
    )
    return [
        FilledCell(member=member, cell=cell, run=run)
        for member, cell, run in session.execute(query)
    ]


def count_campaigns_of_cells(session: Session, campaign: Campaign) -> dict[str, int]:
    """Return in how many campaigns each of the campaign's cells is, by digest."""
    own = select(CampaignMember.digest).where(CampaignMember.campaign_id == campaign.id)
    query = (
        select(CampaignMember.digest, func.count(CampaignMember.campaign_id.distinct()))
        .where(CampaignMember.project_id == campaign.project_id, CampaignMember.digest.in_(own))
        .group_by(CampaignMember.digest)
    )
    return {str(digest): int(number) for digest, number in session.execute(query)}


def lock_cells(session: Session, project_id: str, digests: Sequence[str]) -> Sequence[CampaignCell]:
    """Return the cells, locked in one order, so that a cell's run is launched once.

    The lock admits those that the new members of other campaigns take on the same cells.
    """
    query = (
        select(CampaignCell)
        .where(CampaignCell.project_id == project_id, CampaignCell.digest.in_(digests))
        .order_by(CampaignCell.digest)
        .with_for_update(key_share=True)
    )
    return session.scalars(query.execution_options(populate_existing=True)).all()


def ensure_cells(session: Session, project_id: str, specs: Mapping[str, RunSpec]) -> None:
    """Add the cells, by digest, that the project does not have yet."""
    rows = [
        {
            "project_id": project_id,
            "digest": digest,
            "spec": spec.model_dump(mode="json"),
            "num_launches": 0,
        }
        for digest, spec in sorted(specs.items())
    ]
    session.execute(insert(CampaignCell).on_conflict_do_nothing(), rows)


def add_cells(session: Session, campaign: Campaign, planned: Sequence[PlannedCell]) -> None:
    """Add the campaign's members, and the cells that the project does not have yet."""
    ensure_cells(session, campaign.project_id, {each.digest: each.spec for each in planned})
    session.add_all(
        CampaignMember(
            campaign_id=campaign.id,
            number=number,
            project_id=campaign.project_id,
            digest=each.digest,
            model=each.model,
            dataset=each.dataset,
            repeat=each.repeat,
        )
        for number, each in enumerate(planned, 1)
    )
    session.flush()
