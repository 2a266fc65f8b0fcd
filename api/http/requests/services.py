"""The parts of the service that a request may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from api.admission.admission import Admission
from api.admission.refusals.rental import RentalSettings
from api.admission.refusals.tenancy import TenancyRules
from api.clusters.secrets import node_secrets
from api.http.oidc.provider import OidcClient, Provider
from api.http.payloads.runs import run_as_json
from api.http.requests.thread_pools import DatasetPools, RunPools
from api.notices.slack.web_api import SlackApi
from api.queue import CeleryTaskQueue, TaskQueue
from api.settings import Settings
from api.tables.access.secrets.keyring import NO_KEYS, Keyring
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy

SLACK_TIMEOUT_S = 5.0
"""A hanging Slack occupies a thread of the API's pool for no longer."""
STORE_RETRIES = RetryPolicy(total_s=10.0)
"""Limit of the retries of the blob store within one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of the service that a request may use."""

    settings: Settings
    database: Database
    task_queue: TaskQueue
    store: BlobStore
    dataset_pools: DatasetPools
    run_pools: RunPools = field(default_factory=RunPools)
    provider: Provider | None = None
    """The provider of identities; null where people sign in with keys and codes alone."""
    node_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of the service that rented nodes receive."""
    keyring: Keyring = NO_KEYS
    """Master keys of the projects' secrets."""

    @property
    def cursor_secret(self) -> str:
        """The secret that signs cursors."""
        return self.settings.secret_key.get_secret_value()

    @property
    def slack(self) -> SlackApi:
        """Slack's Web API with the service's bot token."""
        settings = self.settings
        token = settings.slack_bot_token
        secret = "" if token is None else token.get_secret_value()
        return SlackApi(
            token=secret, base_url=settings.slack_api_base_url, timeout_s=SLACK_TIMEOUT_S
        )

    @property
    def admission(self) -> Admission:
        """Admission of runs by this service's settings."""
        settings = self.settings
        return Admission(
            database=self.database,
            rental=RentalSettings(
                clouds=settings.clouds,
                api_url=settings.node_api_url or settings.public_url,
                blobs_url=settings.node_blobs_url or settings.blobs_url,
                node_secrets=self.node_secrets,
                secret_hosts=settings.operators_hosts,
                images=settings.node_images.split(),
            ),
            describe=run_as_json,
            tenancy=TenancyRules.of(settings),
            defaults=settings.run_defaults,
        )


@contextmanager
def open_services(
    settings: Settings,
    environment: Mapping[str, str],
    task_queue: TaskQueue | None = None,
    database: Database | None = None,
) -> Iterator[Services]:
    """Open the parts that the settings name, and close them at the end of the block.

    `environment` has the variables that rented nodes receive. Parts that the caller made stay open.
    """
    with ExitStack() as own:
        if database is None:
            made = Database(settings.database_url, pool=settings.db_pool)
            database = own.enter_context(closing(made))
        celery = own.enter_context(closing(CeleryTaskQueue(settings.redis_url)))
        provider = _provider(settings)
        if provider is not None:
            own.enter_context(closing(provider))
        yield Services(
            settings=settings,
            database=database,
            task_queue=task_queue or celery,
            store=open_store(settings.blobs_url, STORE_RETRIES),
            dataset_pools=DatasetPools(),
            provider=provider,
            node_secrets=node_secrets(settings.node_secrets, environment),
            keyring=Keyring.of(settings),
        )


def _provider(settings: Settings) -> Provider | None:
    """Return the provider of identities that the settings name."""
    if settings.oidc_issuer is None:
        return None
    secret = settings.oidc_client_secret
    client = OidcClient(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id or "",
        client_secret=secret.get_secret_value() if secret is not None else None,
    )
    return Provider(client)
