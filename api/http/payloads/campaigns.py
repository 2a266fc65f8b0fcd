"""Builds the payloads of campaigns from their rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy.orm import Session

from api.admission.campaigns import store
from api.admission.campaigns.cell_states import status_of
from api.tables.studies.campaigns import Campaign
from hillclimb.protocol.payloads.studies.campaigns import (
    CampaignPayload,
    CampaignSummary,
    CellPayload,
)


def summarise_campaign(session: Session, campaign: Campaign) -> CampaignSummary:
    """Return a campaign with the number of its cells in each state."""
    return CampaignSummary.model_validate(
        _facts(campaign, Counter(status_of(cell).state for cell in _cells(session, campaign)))
    )


def describe_campaign(session: Session, campaign: Campaign) -> CampaignPayload:
    """Return a campaign with all its cells."""
    shared = store.count_campaigns_of_cells(session, campaign)
    cells = []
    for each in _cells(session, campaign):
        status = status_of(each)
        cells.append(
            CellPayload(
                number=each.member.number,
                model=each.member.model,
                dataset=each.member.dataset,
                repeat=each.member.repeat,
                state=status.state,
                why=status.why,
                run_id=each.cell.run_id,
                num_launches=each.cell.num_launches,
                num_campaigns=shared[each.cell.digest],
            )
        )
    facts = _facts(campaign, Counter(cell.state for cell in cells))
    return CampaignPayload.model_validate({**facts, "spec": campaign.spec, "cells": cells})


def _cells(session: Session, campaign: Campaign) -> list[store.FilledCell]:
    return store.list_cells(session, campaign)


def _facts(campaign: Campaign, states: Counter[Any]) -> dict[str, Any]:
    return {
        "id": campaign.id,
        "name": campaign.name,
        "created_at": campaign.created_at,
        "created_by": campaign.created_by,
        "num_cells": sum(states.values()),
        "states": dict(states),
    }
