"""What the worker's tasks need, made once per process and only after Celery has forked."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import lru_cache

from api.clusters.secrets import node_secrets
from api.database import Database
from api.notices.deliver import Delivery
from api.notices.slack import SlackApi
from api.settings import Settings, load_settings
from trainer.stores.base import BlobStore
from trainer.stores.locate import open_store
from trainer.stores.patience import Patience
from worker.clusters.base import Clouds
from worker.clusters.locate import open_clouds
from worker.clusters.options import ClusterOptions
from worker.clusters.wheel import find_lock, find_wheel

STORE_PATIENCE = Patience(total_s=10.0)
"""A step of a run waits for a store for less than its lease lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`owner` is the name under which this process takes leases."""

    database: Database
    store: BlobStore
    owner: str
    delivery: Delivery
    clouds: Clouds | None = None
    """Who rents clusters; null where nobody does."""
    cluster_options: ClusterOptions | None = None
    reaps_dry: bool = False
    """Only tell of clusters without an owner, do not end them."""


@lru_cache
def load_parts() -> Parts:
    """Return this process's parts."""
    return make_parts(load_settings())


def make_parts(settings: Settings) -> Parts:
    """Return the parts that the settings describe."""
    database = Database(settings.database_url)
    token = settings.slack_bot_token
    slack = (
        SlackApi(token=token.get_secret_value(), base_url=settings.slack_api_base_url)
        if token and token.get_secret_value()
        else None
    )
    return Parts(
        database=database,
        store=open_store(settings.blobs_url, STORE_PATIENCE),
        owner=f"{socket.gethostname()}:{os.getpid()}",
        delivery=Delivery(database=database, slack=slack, public_url=settings.link_base),
        clouds=open_clouds(settings.clouds),
        cluster_options=_cluster_options(settings) if settings.clouds else None,
        reaps_dry=settings.reaps_dry,
    )


def _cluster_options(settings: Settings) -> ClusterOptions:
    return ClusterOptions(
        api_url=settings.node_api_url or settings.public_url,
        blobs_url=settings.node_blobs_url or settings.blobs_url,
        secret=settings.secret_key.get_secret_value(),
        wheel=find_wheel(settings.wheel),
        lock=find_lock(),
        node_secrets=node_secrets(settings.node_secrets, os.environ),
    )
