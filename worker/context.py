"""What the worker's tasks need, made once per process and only after Celery has forked."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import lru_cache

from api.database import Database
from api.notices.deliver import Delivery
from api.notices.slack import SlackApi
from api.settings import Settings, load_settings
from trainer.stores.base import BlobStore
from trainer.stores.locate import open_store
from trainer.stores.patience import Patience
from worker.clusters.renting import Renting, make_renting
from worker.resting import RestingStore

STORE_PATIENCE = Patience(total_s=5.0, silence_s=8.0)
"""A step of a run waits for a store for less than its lease lasts; every sweep asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`owner` is the name under which this process takes leases."""

    database: Database
    store: BlobStore
    owner: str
    delivery: Delivery
    renting: Renting | None = None
    """How clusters are rented; null where nobody rents any."""


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
        store=RestingStore(open_store(settings.blobs_url, STORE_PATIENCE)),
        owner=f"{socket.gethostname()}:{os.getpid()}",
        delivery=Delivery(database=database, slack=slack, public_url=settings.link_base),
        renting=make_renting(settings, database),
    )
