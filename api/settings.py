"""Settings of api and worker from environment variables; the defaults are the embedded stack's."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


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
    bootstrap_key: Annotated[SecretStr | None, Field(alias="HILLCLIMB_BOOTSTRAP_KEY")] = None
    """An API key with all user scopes that the API registers at start."""
    runner_token: Annotated[SecretStr | None, Field(alias="HILLCLIMB_RUNNER_TOKEN")] = None
    """A key with the scope `runner` that the API registers at start."""
    slack_bot_token: Annotated[SecretStr | None, Field(alias="SLACK_BOT_TOKEN")] = None
    """Unset: no messages to Slack."""
    slack_signing_secret: Annotated[SecretStr | None, Field(alias="SLACK_SIGNING_SECRET")] = None
    """Verifies requests of Slack: commands, buttons, events (docs/slack.md); unset: none is
    accepted."""
    slack_api_base_url: Annotated[str, Field(alias="SLACK_API_BASE_URL")] = "https://slack.com/api"
    """The address of Slack's Web API; tests set a fake one."""
    sky_url: Annotated[str | None, Field(alias="SKYPILOT_API_SERVER_ENDPOINT")] = None
    """The address of SkyPilot's API server; unset: no machines can be rented."""

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
    clusters receive: credentials of platforms and of the blob store (docs/nodes.md)."""
    abandons_clusters: Annotated[bool, Field(alias="HILLCLIMB_ABANDON_CLUSTERS")] = False
    """Start without `HILLCLIMB_CLOUDS` although live clusters would not be terminated then."""
    reaps_dry: Annotated[bool, Field(alias="HILLCLIMB_REAP_DRY_RUN")] = False
    """Only report orphaned clusters; do not terminate them."""

    @property
    def link_base(self) -> str:
        """The base of links for people, without a trailing slash."""
        return (self.link_url or self.public_url).rstrip("/")


@lru_cache
def load_settings() -> Settings:
    """Return this process's settings; raises pydantic.ValidationError naming what is missing."""
    return Settings()
