"""The sections `notify` and `tracking`: Slack messages and experiment trackers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.spec.section import Section

WandbName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
SlackChannel = Annotated[str, Field(pattern=r"^[#CGD]?[A-Za-z0-9._-]{1,80}$")]


class WandbSpec(Section):
    """Weights & Biases: one run per attempt, `RUN-attempt-N`, linked by group and config."""

    mode: Literal["disabled", "offline", "online"] = "disabled"
    """`offline`: files under the attempt's directory, for `wandb sync`. `online`: sent during the
    run; the key is `WANDB_API_KEY` in the environment of the trainer, never in a spec."""
    project: WandbName = "hillclimb"
    """The W&B project."""
    entity: WandbName | None = None
    """The W&B team or user; null is the key's own."""
    group: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """W&B group of the run's attempts; null is the run's id."""
    tags: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)], ...], Field(max_length=32)
    ] = ()
    """Tags of the W&B runs."""


class MlflowSpec(Section):
    """MLflow: one run per attempt, `RUN-attempt-N`, sent during the run.

    Credentials are MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD, in the environment of the trainer, never in a spec. They are sent only
    where `tracking_uri` is the MLFLOW_TRACKING_URI of that environment.
    """

    tracking_uri: Annotated[
        str, Field(pattern=r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$", max_length=300)
    ]
    """Address of the tracking server, without credentials."""
    experiment: Annotated[str, Field(min_length=1, max_length=200)] = "hillclimb"
    """The MLflow experiment; it is created if it is not there."""


class TrackingSpec(Section):
    """Experiment trackers that also receive the metrics; a failing one never stops the run."""

    wandb: WandbSpec = WandbSpec()
    """Weights & Biases."""
    tensorboard: bool = False
    """Write TensorBoard's event files, which `hillclimb export tracking` fetches."""
    mlflow: MlflowSpec | None = None
    """MLflow; null sends nothing."""


class SlackSpec(Section):
    """Messages to a Slack channel."""

    channel: SlackChannel
    """Channel name (`#training`) or id; the service needs a bot token."""


class NotifySpec(Section):
    """Notifications when the run starts, evaluates and ends."""

    slack: SlackSpec | None = None
    """Post to Slack; null posts nothing."""
