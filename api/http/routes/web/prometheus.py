"""`/metrics`: measurements of the service in Prometheus' text format, for operators."""

from __future__ import annotations

import hmac
from ipaddress import ip_address

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from api.http.measurement.requests import STATE_KEY
from api.http.measurement.state import StoredState
from api.http.problems import KINDS, documented
from api.http.requests.context import Credentials, ServicesDep
from api.runs.journal import utc_now
from api.settings import Settings
from api.tables.access.identity import NotAuthenticated

router = APIRouter(tags=["operations"])


@router.get(
    "/metrics",
    operation_id="get_prometheus_metrics",
    summary="Measurements of the service for Prometheus",
    response_class=PlainTextResponse,
    responses={**documented(KINDS[NotAuthenticated])},
)
def get_prometheus_metrics(
    request: Request, services: ServicesDep, credentials: Credentials
) -> Response:
    """Return durations of this process's requests, and counts of runs, outbox and clusters.

    Requires the token HILLCLIMB_METRICS_TOKEN, or with HILLCLIMB_METRICS_ON_LOOPBACK a loopback
    address. API keys are no use here: the counts are those of all projects.
    """
    host = request.client.host if request.client else ""
    token = credentials.credentials if credentials else ""
    if not _may_read(services.settings, token, host):
        raise NotAuthenticated(
            "Send `Authorization: Bearer` with the operator's HILLCLIMB_METRICS_TOKEN, or start the"
            " service with HILLCLIMB_METRICS_ON_LOOPBACK=true and scrape it from its own machine."
        )
    stored = CollectorRegistry()
    with services.database.transaction() as session:
        stored.register(StoredState(session, now=utc_now()))
        text = generate_latest(getattr(request.state, STATE_KEY)) + generate_latest(stored)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _may_read(settings: Settings, token: str, host: str) -> bool:
    if settings.metrics_token is not None:
        expected = settings.metrics_token.get_secret_value().encode()
        if hmac.compare_digest(token.encode(), expected):
            return True
    return settings.metrics_on_loopback and _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
