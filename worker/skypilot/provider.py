"""How this service rents clusters: whom it asks, and what it gives to the machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from api.clusters.names import deployment_tag, prefix
from api.clusters.secrets import node_secrets
from api.database import Database
from api.settings import Settings
from worker.clusters.base import Clouds
from worker.clusters.locate import open_clouds
from worker.clusters.options import ClusterOptions
from worker.clusters.wheel import find_locks, find_wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Renting:
    """Both parts are made when they are first asked for.

    A client of clouds takes seconds to import, and most of a worker's tasks ask none.
    """

    clouds: Callable[[], Clouds]
    """Raises CloudsMisconfigured."""
    options: Callable[[], ClusterOptions]
    """Raises NoWheel."""
    reaps_dry: bool = False
    """Only tell of clusters without an owner, do not end them."""


def make_renting(settings: Settings, database: Database) -> Renting | None:
    """Return how clusters are rented; None where `HILLCLIMB_CLOUDS` is empty."""
    if not settings.clouds:
        return None

    @cache
    def clouds() -> Clouds:
        with database.transaction() as session:
            ours = prefix(deployment_tag(session))
        return open_clouds(settings.clouds, ours)

    return Renting(
        clouds=clouds,
        options=cache(lambda: _options(settings)),
        reaps_dry=settings.reaps_dry,
    )


def _options(settings: Settings) -> ClusterOptions:
    return ClusterOptions(
        api_url=settings.node_api_url or settings.public_url,
        blobs_url=settings.node_blobs_url or settings.blobs_url,
        secret=settings.secret_key.get_secret_value(),
        wheel=find_wheel(settings.wheel),
        locks=find_locks(),
        node_secrets=node_secrets(settings.node_secrets, os.environ),
    )
