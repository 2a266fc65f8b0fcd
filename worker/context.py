"""Dependencies of the worker's tasks, created once per process, after Celery has forked."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import lru_cache

from api.notices.deliver import Delivery
from api.notices.slack.web_api import make_slack
from api.notices.webhooks.deliver import WebhookDelivery
from api.settings import Settings, load_settings
from api.tables.access.secrets.keyring import Keyring
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from worker.circuit_breaker import CircuitBreakerStore
from worker.skypilot.provider import CloudProvider, make_cloud_provider

STORE_RETRY = RetryPolicy(total_s=5.0, silence_s=8.0)
"""Shorter than a run's lease: a step must not outlive it, and the next sweep tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Database, blob store and ports; `owner` is the name under which this process takes leases."""

    database: Database
    store: BlobStore
    owner: str
    delivery: Delivery
    cloud_provider: CloudProvider | None = None
    """None where no clouds are configured."""


@lru_cache
def load_context() -> WorkerContext:
    """Return this process's context."""
    return make_context(load_settings())


@lru_cache
def load_webhooks() -> WebhookDelivery:
    """Return this process's delivery of webhooks."""
    settings = load_settings()
    return WebhookDelivery(
        database=load_context().database,
        keyring=Keyring.of(settings),
        public_url=settings.link_base,
        allows_loopback=settings.webhook_loopback,
    )


def make_context(settings: Settings) -> WorkerContext:
    """Create the context from the settings."""
    database = Database(settings.database_url, pool=settings.db_worker_pool, beside=0)
    slack = make_slack(settings.slack_bot_token, settings.slack_api_base_url)
    store = CircuitBreakerStore(open_store(settings.blobs_url, STORE_RETRY))
    return WorkerContext(
        database=database,
        store=store,
        owner=f"{socket.gethostname()}:{os.getpid()}",
        delivery=Delivery(
            database=database, slack=slack, public_url=settings.link_base, store=store
        ),
        cloud_provider=make_cloud_provider(settings, database),
    )
