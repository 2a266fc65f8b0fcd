"""Settings of api and worker from environment variables; the defaults are the embedded stack's."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from hillclimb.blobs.allowed import NoAddress, place_of
from hillclimb.process.network.addresses import PRIVATE_HOSTS, AllowedHosts
from hillclimb.spec.hosts import OPERATORS_HOSTS, hosts_by_variable
from hillclimb.spec.monitoring.reporting import SlackChannel
from hillclimb.spec.rules.project_defaults import DefaultValues


class Settings(BaseSettings):
    """Configuration of the control plane, read from the environment."""

    # Compose passes an unset variable as an empty one: both mean the default.
    model_config = SettingsConfigDict(
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    database_url: Annotated[str, Field(alias="DATABASE_URL")]
    """`postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME`."""
    redis_url: Annotated[str, Field(alias="REDIS_URL")]
    """`redis://…`: broker of the task queue."""
    blobs_url: Annotated[str, Field(alias="HILLCLIMB_BLOBS_URL")]
    """The blob store of checkpoints, trajectories and logs: a directory or `s3://BUCKET/PREFIX`."""
    public_url: Annotated[str, Field(alias="HILLCLIMB_API_URL")] = "http://127.0.0.1:8000"
    """The API's address as runners and trainers reach it."""
    link_url: Annotated[str | None, Field(alias="HILLCLIMB_LINK_URL")] = None
    """The API's address in links for people (Slack, sign-in); unset: `HILLCLIMB_API_URL`."""
    secret_key: Annotated[SecretStr, Field(alias="HILLCLIMB_SECRET_KEY")]
    """Signs cursors; any long random string, the same for all API processes."""
    master_keys: Annotated[SecretStr | None, Field(alias="HILLCLIMB_MASTER_KEYS")] = None
    """`ID:KEY`, separated by spaces: KEY is 32 random bytes in base64. They encrypt the projects'
    secrets: the first one new values, every one the values that it encrypted. Unset: a key derived
    from `HILLCLIMB_SECRET_KEY`, which decrypts its own values in any case (docs/secrets.md)."""
    bootstrap_key: Annotated[SecretStr | None, Field(alias="HILLCLIMB_BOOTSTRAP_KEY")] = None
    """An API key with all user scopes that the API registers at start."""
    runner_token: Annotated[SecretStr | None, Field(alias="HILLCLIMB_RUNNER_TOKEN")] = None
    """A key with the scope `runner` that the API registers at start."""
    slack_bot_token: Annotated[SecretStr | None, Field(alias="SLACK_BOT_TOKEN")] = None
    """Unset: no messages to Slack."""
    slack_signing_secret: Annotated[SecretStr | None, Field(alias="SLACK_SIGNING_SECRET")] = None
    """Verifies requests of Slack: commands, buttons, events (docs/slack.md); unset: none is
    accepted."""
    slack_app_token: Annotated[SecretStr | None, Field(alias="SLACK_APP_TOKEN")] = None
    """Opens the connection of Socket Mode, by which Slack's requests arrive without a public
    address (docs/slack.md); unset: none is opened."""
    slack_channel: Annotated[SlackChannel | None, Field(alias="HILLCLIMB_SLACK_CHANNEL")] = None
    """The channel of runs for which neither the spec nor the project's defaults name one, such as
    `#fleet-training-runs`; unset: they post nothing."""
    slack_channels: Annotated[str, Field(alias="HILLCLIMB_SLACK_CHANNELS")] = ""
    """`CHANNEL=PROJECT`, separated by spaces: which project's runs may post to a channel, by name
    and, if it is used, by id too. A channel that is not listed is open to the project `default`
    alone (docs/slack.md)."""
    slack_api_base_url: Annotated[str, Field(alias="SLACK_API_BASE_URL")] = "https://slack.com/api"
    """The address of Slack's Web API; tests set a fake one."""
    webhook_loopback: Annotated[bool, Field(alias="HILLCLIMB_WEBHOOK_LOOPBACK")] = False
    """Accept webhooks to servers on the service's own machine, also over http: to try them."""
    metrics_token: Annotated[SecretStr | None, Field(alias="HILLCLIMB_METRICS_TOKEN")] = None
    """The token with which Prometheus reads `/metrics`; unset: none does."""
    metrics_on_loopback: Annotated[bool, Field(alias="HILLCLIMB_METRICS_ON_LOOPBACK")] = False
    """Whether anybody on the service's own machine may read `/metrics`. Behind a proxy on the same
    machine that sends no `X-Forwarded-For`, this is everybody."""
    sky_url: Annotated[str | None, Field(alias="SKYPILOT_API_SERVER_ENDPOINT")] = None
    """The address of SkyPilot's API server; unset: no machines can be rented."""

    oidc_issuer: Annotated[str | None, Field(alias="HILLCLIMB_OIDC_ISSUER")] = None
    """The issuer of the provider of identities, such as `https://accounts.example.org`; unset:
    people sign in with keys and codes alone (docs/access.md)."""
    oidc_client_id: Annotated[str | None, Field(alias="HILLCLIMB_OIDC_CLIENT_ID")] = None
    """This service's name at the provider; required with an issuer."""
    oidc_client_secret: Annotated[SecretStr | None, Field(alias="HILLCLIMB_OIDC_CLIENT_SECRET")] = (
        None
    )
    """This service's secret at the provider; unset: a public client with PKCE."""
    api_processes: Annotated[int, Field(alias="HILLCLIMB_API_PROCESSES", ge=1, le=64)] = 1
    """API processes behind one address, at most one for each core."""
    db_pool: Annotated[int, Field(alias="HILLCLIMB_DB_POOL", ge=2, le=1000)] = 40
    """Connections that one API process may have to PostgreSQL, and three more. It has 40 threads:
    with fewer connections some requests wait for one. API processes × (this + 3) must fit into
    PostgreSQL's `max_connections`, and so should what the workers add."""
    db_worker_pool: Annotated[int, Field(alias="HILLCLIMB_DB_WORKER_POOL", ge=2, le=1000)] = 5
    """Connections that each process of a worker (`--concurrency`) and Slack's process may have."""
    requests_per_minute: Annotated[int, Field(alias="HILLCLIMB_REQUESTS_PER_MINUTE", ge=1)] = 6000
    """Requests that one key, or one person in a browser, may send per minute to one address of the
    API, whichever of its processes receives them."""
    wrong_keys_per_minute: Annotated[int, Field(alias="HILLCLIMB_WRONG_KEYS_PER_MINUTE", ge=1)] = 60
    """Wrong keys, tokens or sign-in links of one client address per minute, to one address of the
    API."""
    trusted_proxies: Annotated[str, Field(alias="FORWARDED_ALLOW_IPS")] = "127.0.0.1"
    """Addresses of proxies, separated by commas, from whose `X-Forwarded-For` uvicorn takes the
    caller's address; it reads the variable itself. Without it all callers behind a proxy share
    that one's address, and one limit of wrong keys."""

    dataset_max_mb: Annotated[int, Field(alias="HILLCLIMB_DATASET_MAX_MB", ge=1)] = 512
    """Largest accepted upload of tasks, as sent (MB)."""
    dataset_unpacked_mb: Annotated[int, Field(alias="HILLCLIMB_DATASET_UNPACKED_MB", ge=1)] = 2048
    """Largest accepted file of tasks, unpacked (MB)."""
    dataset_memory_mb: Annotated[int, Field(alias="HILLCLIMB_DATASET_MEMORY_MB", ge=512)] = 2048
    """Address space of the process that reads a file of tasks (MB)."""
    dataset_deadline_s: Annotated[float, Field(alias="HILLCLIMB_DATASET_DEADLINE_S", gt=0)] = 300.0
    """Time limit of building one dataset version (s)."""
    dataset_sources: Annotated[str, Field(alias="HILLCLIMB_DATASET_SOURCES")] = ""
    """Sources from which the service may fetch tasks with its own credentials: prefixes separated
    by spaces, such as `s3://BUCKET/PREFIX` (also `?endpoint_url=…&region=…`) or `file:///DIR`;
    other addresses are rejected. Empty: only uploads are accepted."""

    run_sources: Annotated[str, Field(alias="HILLCLIMB_RUN_SOURCES")] = ""
    """Places that `model.source` and `sft.demonstrations` of a spec may name: prefixes separated by
    spaces, such as `s3://BUCKET/PREFIX` or `file:///DIR` on the machines of trainers; other
    addresses are rejected (docs/secrets.md). Empty: none. `hillclimb up` sets `file:///`."""

    clouds: Annotated[str, Field(alias="HILLCLIMB_CLOUDS")] = ""
    """The provider of clusters: `skypilot`, or `PACKAGE.MODULE:FACTORY` for one of your own
    (`worker/skypilot/port.py`); empty: none, and specs that need a cluster are rejected."""
    wheel: Annotated[str | None, Field(alias="HILLCLIMB_WHEEL")] = None
    """The wheel of this code that nodes install; unset: built from the source tree."""
    node_api_url: Annotated[str | None, Field(alias="HILLCLIMB_NODE_API_URL")] = None
    """The API's address as nodes of clusters reach it; unset: `HILLCLIMB_API_URL`."""
    node_blobs_url: Annotated[str | None, Field(alias="HILLCLIMB_NODE_BLOBS_URL")] = None
    """The blob store as nodes of clusters reach it; unset: `HILLCLIMB_BLOBS_URL`."""
    node_secrets: Annotated[str, Field(alias="HILLCLIMB_NODE_SECRETS")] = ""
    """Names, separated by spaces, of variables in the service's environment that trainers on rented
    clusters receive where their run needs them: credentials of platforms and of the blob store
    (docs/nodes.md)."""
    run_secret_hosts: Annotated[str, Field(alias=OPERATORS_HOSTS)] = ""
    """`RUN_SECRET_X=HOST,HOST`, separated by spaces: the hosts to which specs may send those of
    `HILLCLIMB_NODE_SECRETS`; a runner reads a variable of the same name (docs/secrets.md)."""
    run_private_hosts: Annotated[str, Field(alias=PRIVATE_HOSTS)] = ""
    """Hosts, addresses and ranges (`10.1.0.0/16`) outside of the internet that runs on rented
    clusters may reach, separated by spaces; a runner reads a variable of the same name
    (docs/secrets.md)."""
    node_images: Annotated[str, Field(alias="HILLCLIMB_NODE_IMAGES")] = ""
    """Images (`docker:REGISTRY/NAME:TAG`) and, for `trainer.type: prebuilt`, interpreters
    (`/PATH/python`) of nodes that specs may name, separated by spaces: their code gets the secrets
    of `HILLCLIMB_NODE_SECRETS`. Empty: none, so nodes install the service's own wheel."""
    keep_trajectories_days: Annotated[
        float | None, Field(alias="HILLCLIMB_KEEP_TRAJECTORIES_DAYS", gt=0)
    ] = None
    """Days after a run's end for which the files of its rollouts are kept; unset: for ever."""
    keep_token_values_days: Annotated[
        float | None, Field(alias="HILLCLIMB_KEEP_TOKEN_VALUES_DAYS", gt=0)
    ] = None
    """The same for the learner's values of each token."""
    keep_metrics_days: Annotated[float | None, Field(alias="HILLCLIMB_KEEP_METRICS_DAYS", gt=0)] = (
        None
    )
    """The same for training metrics, of which 1,000 points of each series stay."""
    keep_runs_days: Annotated[float | None, Field(alias="HILLCLIMB_KEEP_RUNS_DAYS", gt=0)] = None
    """Days after its end when a run that nothing needs is deleted; unset: never."""
    abandons_clusters: Annotated[bool, Field(alias="HILLCLIMB_ABANDON_CLUSTERS")] = False
    """Start without `HILLCLIMB_CLOUDS` although live clusters would not be terminated then."""
    reaps_dry: Annotated[bool, Field(alias="HILLCLIMB_REAP_DRY_RUN")] = False
    """Only report orphaned clusters; do not terminate them."""

    @model_validator(mode="after")
    def _check_slack(self) -> Self:
        for name, value in (
            ("HILLCLIMB_SLACK_CHANNEL", self.slack_channel),
            ("SLACK_APP_TOKEN", self.slack_app_token),
        ):
            if value is not None and self.slack_bot_token is None:
                raise ValueError(f"{name} needs SLACK_BOT_TOKEN, with which messages are posted")
        return self

    @model_validator(mode="after")
    def _check_oidc(self) -> Self:
        if self.oidc_issuer is not None and self.oidc_client_id is None:
            raise ValueError("HILLCLIMB_OIDC_ISSUER needs HILLCLIMB_OIDC_CLIENT_ID")
        return self

    @property
    def channel_owners(self) -> dict[str, str]:
        """The project of each channel in `HILLCLIMB_SLACK_CHANNELS`, by its name without `#`."""
        entries = (each.partition("=") for each in self.slack_channels.split())
        return {channel.removeprefix("#").lower(): project for channel, _, project in entries}

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        hosts_by_variable(self.run_secret_hosts)
        AllowedHosts.parse(self.run_private_hosts)
        if not all(channel and project for channel, project in self.channel_owners.items()):
            raise ValueError("HILLCLIMB_SLACK_CHANNELS lists CHANNEL=PROJECT, separated by spaces")
        for prefix in self.run_sources.split():
            try:
                place_of(prefix)
            except NoAddress as error:
                raise ValueError(f"HILLCLIMB_RUN_SOURCES lists prefixes, and {error}") from error
        return self

    @property
    def store_urls(self) -> tuple[str, ...]:
        """The addresses of the blob store, for the service and for nodes."""
        return tuple(each for each in (self.blobs_url, self.node_blobs_url) if each)

    @property
    def operators_hosts(self) -> dict[str, tuple[str, ...]]:
        """The hosts to which specs may send each of the operator's secrets for nodes."""
        return hosts_by_variable(self.run_secret_hosts)

    @property
    def run_defaults(self) -> DefaultValues:
        """The operator's defaults of runs, which go after those of their project."""
        return DefaultValues(slack_channel=self.slack_channel)

    @property
    def link_base(self) -> str:
        """The base of links for people, without a trailing slash."""
        return (self.link_url or self.public_url).rstrip("/")


@lru_cache
def load_settings() -> Settings:
    """Return this process's settings; raises pydantic.ValidationError naming what is missing."""
    return Settings()
