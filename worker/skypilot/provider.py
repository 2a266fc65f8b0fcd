"""The cloud provider of this process: the port to the clouds, and the options of nodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from api.clusters.names import deployment_tag, prefix
from api.clusters.secrets import node_secrets
from api.settings import Settings
from api.tables.access.secrets.keyring import Keyring
from api.tables.database import Database
from worker.skypilot.locate import open_clouds
from worker.skypilot.options import ClusterOptions
from worker.skypilot.port import Clouds
from worker.skypilot.wheel import find_locks, find_wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudProvider:
    """Creates port and options on first use.

    SkyPilot's client takes seconds to import, and most tasks of a worker call no cloud.
    """

    clouds: Callable[[], Clouds]
    """Raises CloudsMisconfigured."""
    options: Callable[[], ClusterOptions]
    """Raises NoWheel."""
    reaps_dry: bool = False
    """Report orphaned clusters without terminating them."""


def make_cloud_provider(settings: Settings, database: Database) -> CloudProvider | None:
    """Return the provider that the settings name; None where `HILLCLIMB_CLOUDS` is empty."""
    if not settings.clouds:
        return None

    @cache
    def clouds() -> Clouds:
        with database.transaction() as session:
            name_prefix = prefix(deployment_tag(session))
        return open_clouds(settings.clouds, name_prefix)

    return CloudProvider(
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
        secret_hosts=settings.operators_hosts,
        private_hosts=settings.run_private_hosts,
        keyring=Keyring.of(settings),
    )
