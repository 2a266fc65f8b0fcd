"""The client's methods for campaigns."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.studies.campaigns import (
    CampaignList,
    CampaignPayload,
    CampaignTable,
)

PATH = "/v1/campaigns"


class Campaigns:
    """Campaigns of the project; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self, spec: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> CampaignPayload:
        """Launch a campaign; the same key and spec return the same campaign again."""
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._http.request(CampaignPayload, "POST", PATH, json=dict(spec), headers=headers)

    def list(self, *, before: str | None = None, limit: int | None = None) -> CampaignList:
        """Return one page of campaigns, newest first, older than the campaign `before`."""
        return self._http.get(CampaignList, PATH, {"before": before, "limit": limit})

    def get(self, campaign_id: str) -> CampaignPayload:
        """Return a campaign with every cell."""
        return self._http.get(CampaignPayload, _of(campaign_id))

    def table(self, campaign_id: str, *, k: int | None = None) -> CampaignTable:
        """Return the results so far, with verdicts of pass@k against the first model."""
        return self._http.get(CampaignTable, _of(campaign_id, "table"), {"k": k})

    def retry(self, campaign_id: str) -> CampaignPayload:
        """Launch the cells again that have no result and may get one; repeating it is safe."""
        return self._http.request(CampaignPayload, "POST", _of(campaign_id, "retry"))

    def cancel(self, campaign_id: str) -> CampaignPayload:
        """Cancel the runs under way that no other campaign shares."""
        return self._http.request(CampaignPayload, "POST", _of(campaign_id, "cancel"))


def _of(campaign_id: str, *parts: str) -> str:
    return "/".join((PATH, quoted(campaign_id), *parts))
